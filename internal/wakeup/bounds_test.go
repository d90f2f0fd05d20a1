package wakeup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An ending is one of the bounds, and what reaches it after a second.
var endings = map[string]func(b *Bounds){
	"context": func(b *Bounds) {
		ctx, cancel := context.WithCancel(b.Ctx)
		b.Ctx = ctx
		time.AfterFunc(time.Second, cancel)
	},
	"time": func(b *Bounds) { b.Expired = time.After(time.Second) },
	"session": func(b *Bounds) {
		closing := make(chan struct{})
		b.Closing = closing
		time.AfterFunc(time.Second, func() { close(closing) })
	},
}

// inFakeTime runs a test in a bubble. took checks how long it is since the bubble began.
func inFakeTime(t *testing.T, test func(t *testing.T, took func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		test(t, func(want time.Duration) {
			t.Helper()
			if d := time.Since(began); d != want {
				t.Errorf("it took %v, want %v", d, want)
			}
		})
	})
}

func TestSleepEndsWithAnyBound(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, took func(time.Duration)) {
				b := Bounds{Ctx: context.Background()}
				end(&b)
				if heard, ended := b.Sleep(time.Hour, make(chan struct{})); heard || !ended {
					t.Errorf("news: %v, ended: %v", heard, ended)
				}
				took(time.Second)
			})
		})
	}
}

func TestSleepEndsInTime(t *testing.T) {
	inFakeTime(t, func(t *testing.T, took func(time.Duration)) {
		b := Bounds{Ctx: context.Background(), Closing: make(chan struct{})}
		for _, news := range []chan struct{}{nil, make(chan struct{})} {
			if heard, ended := b.Sleep(time.Second, news); heard || ended {
				t.Errorf("news: %v, ended: %v", heard, ended)
			}
		}
		took(2 * time.Second)
	})
}

func TestSleepEndsWithNewsAlsoOfBefore(t *testing.T) {
	inFakeTime(t, func(t *testing.T, took func(time.Duration)) {
		b := Bounds{Ctx: context.Background()}
		news := make(chan struct{}, 1)
		time.AfterFunc(time.Second, func() { news <- struct{}{} })
		if heard, ended := b.Sleep(time.Hour, news); !heard || ended {
			t.Errorf("news: %v, ended: %v", heard, ended)
		}
		news <- struct{}{}
		if heard, ended := b.Sleep(time.Hour, news); !heard || ended {
			t.Errorf("news that was there: %v, ended: %v", heard, ended)
		}
		took(time.Second)
	})
}

func TestAwaitReceivesUnlessABoundEndsThat(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, took func(time.Duration)) {
				b := Bounds{Ctx: context.Background()}
				end(&b)
				c := make(chan int)
				go func() { c <- 7 }()
				if v, ok := Await(&b, c); v != 7 || !ok {
					t.Errorf("%v, %v", v, ok)
				}
				took(0)
				if v, ok := Await(&b, c); v != 0 || ok {
					t.Errorf("in the end: %v, %v", v, ok)
				}
				took(time.Second)
			})
		})
	}
}

func TestCallReturnsUnlessTheContextEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T, took func(time.Duration)) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if v, ok := Call(ctx, func() int { return 7 }); v != 7 || !ok {
			t.Errorf("%v, %v", v, ok)
		}
		took(0)
		late := make(chan int)
		defer close(late)
		slow := func() int { return <-late }
		if v, ok := Call(ctx, slow); v != 0 || ok {
			t.Errorf("in the end: %v, %v", v, ok)
		}
		took(time.Second)
	})
}

func TestBoundsAreOverWithTheContextOrTheSession(t *testing.T) {
	for name, over := range map[string]bool{"context": true, "time": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Bounds{Ctx: context.Background()}
				endings[name](&b)
				if b.Over() {
					t.Error("over before that")
				}
				time.Sleep(2 * time.Second)
				if b.Over() != over {
					t.Errorf("over: %v", b.Over())
				}
			})
		})
	}
}

func TestAWaitThatOnlyTheSessionEndsIsUnbounded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		b    Bounds
		want bool
	}{
		{Bounds{Ctx: context.Background(), Closing: make(chan struct{})}, true},
		{Bounds{Ctx: ctx}, false},
		{Bounds{Ctx: context.Background(), Expired: make(chan time.Time)}, false},
	} {
		if got := c.b.Unbounded(); got != c.want {
			t.Errorf("%+v: %v", c.b, got)
		}
	}
}
