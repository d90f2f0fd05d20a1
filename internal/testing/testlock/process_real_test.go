package testlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestAChildGetsItsArguments(t *testing.T) {
	t.Parallel()
	out, err := testlock.Child("127.0.0.1:1", 7, time.Second).Output()
	if string(out) != "127.0.0.1:1 7 1s" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
