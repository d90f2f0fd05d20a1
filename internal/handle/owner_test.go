package handle_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/handle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// holding is a Holding that the key "held" finds.
type holding struct {
	handle.Holding
	ctx       context.Context
	forgotten chan struct{}
}

func (h *holding) Context() context.Context { return h.ctx }
func (h *holding) Find(key any) any {
	if key == "held" {
		return h
	}
	return nil
}
func (h *holding) Err() error                   { return nil }
func (h *holding) Unlock(context.Context) error { return errors.New("told") }
func (h *holding) Forgotten()                   { close(h.forgotten) }

func hold(ctx context.Context) (*holding, *handle.Hold) {
	of := &holding{ctx: ctx, forgotten: make(chan struct{})}
	_, hd := handle.New(ctx, of)
	return of, hd
}

func TestBelowAnOwnerTheLatestHoldThatLivesIsFound(t *testing.T) {
	bg := context.Background()
	request := handle.WithOwner(bg)
	below := context.WithoutCancel(request)
	found := func(ctx context.Context) any { return ctx.Value("held") }
	if found(request) != nil {
		t.Error("found without a hold")
	}
	one, first := hold(below)
	two, second := hold(request)
	if found(below) != any(two) || found(bg) != nil || found(handle.WithOwner(bg)) != nil {
		t.Error("not the latest hold of this owner")
	}
	if err := second.Unlock(bg); err == nil || found(below) != any(one) {
		t.Error("what is unlocked is found, or what is not is not")
	}
	_ = first.Unlock(bg)
	if found(below) != nil {
		t.Error("found when all are unlocked")
	}
}

func TestTheInnermostOwnerNotesAHold(t *testing.T) {
	outer := handle.WithOwner(context.Background())
	inner := handle.WithOwner(outer)
	of, hd := hold(inner)
	if inner.Value("held") != any(of) || outer.Value("held") != nil {
		t.Error("another one has noted it")
	}
	_ = hd.Unlock(outer)
	of, hd = hold(handle.As(inner, handle.OwnerOf(outer)))
	if outer.Value("held") != any(of) || inner.Value("held") != any(of) {
		t.Error("it is not found below the outer one")
	}
	_ = hd.Unlock(outer)
	_, hd = hold(handle.As(inner, nil))
	if inner.Value("held") != nil {
		t.Error("it was noted though no owner should")
	}
	_ = hd.Unlock(outer)
}

func TestAnOwnerForgetsAHoldWithItsUser(t *testing.T) {
	request := handle.WithOwner(context.Background())
	of, _ := hold(request)
	for deadline := time.Now().Add(30 * time.Second); ; runtime.GC() {
		select {
		case <-of.forgotten:
			if request.Value("held") != nil {
				t.Error("a forgotten hold is found")
			}
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not forgotten")
		}
	}
}
