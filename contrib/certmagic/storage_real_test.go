package certmagiclock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/caddyserver/certmagic"

	certmagiclock "github.com/lockline/lockline/contrib/certmagic"
	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestInstancesShareTheLocksOfARealServer(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	files := &certmagic.FileStorage{Path: t.TempDir()}
	const instances = 5
	issuer := newCA(t, nil)
	var inside sync.Mutex
	issuer.answer = func(context.Context, int32) error {
		if !inside.TryLock() {
			t.Error("the CA is asked twice at once")
			return errRefused
		}
		defer inside.Unlock()
		return nil
	}
	var all sync.WaitGroup
	for range instances {
		config := instance(t, certmagiclock.New(testlock.NewSession(t, rdb), files), issuer)
		all.Go(func() {
			if err := config.ObtainCertSync(t.Context(), host); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := issuer.requests.Load(); n != 1 {
		t.Errorf("the CA was asked %d times", n)
	}
}
