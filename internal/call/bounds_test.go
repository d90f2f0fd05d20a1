package call

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// endings has functions that make one of the bounds end after a second.
var endings = map[string]func(b *Bounds){
	"context": func(b *Bounds) {
		ctx, cancel := context.WithCancel(b.Until)
		b.Until = ctx
		time.AfterFunc(time.Second, cancel)
	},
	"session": func(b *Bounds) {
		closing := make(chan struct{})
		b.Closing = closing
		time.AfterFunc(time.Second, func() { close(closing) })
	},
}

// inFakeTime runs a test in fake time. took fails the test unless this time has passed since the beginning.
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
				b := Bounds{Until: context.Background()}
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
		b := Bounds{Until: context.Background(), Closing: make(chan struct{})}
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
		b := Bounds{Until: context.Background()}
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
				b := Bounds{Until: context.Background()}
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

func TestBoundsAreOverWithTheContextOrTheSession(t *testing.T) {
	for name := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Bounds{Until: context.Background()}
				endings[name](&b)
				if b.Over() {
					t.Error("over before that")
				}
				time.Sleep(2 * time.Second)
				if !b.Over() {
					t.Error("not over")
				}
			})
		})
	}
}
