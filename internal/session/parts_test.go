package session

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
)

// piece is a part with a Shutdown that its test sets.
type piece struct {
	shutdown func(ctx context.Context) error
}

func (p *piece) Shutdown(ctx context.Context) error {
	if p.shutdown == nil {
		return nil
	}
	return p.shutdown(ctx)
}

// key is the type of the keys of parts.
type key string

// add adds a part to a session.
func add(t *testing.T, s *Session, k key, shutdown func(context.Context) error) {
	t.Helper()
	if _, err := PartOf(s, k, func(*Session) *piece { return &piece{shutdown} }); err != nil {
		t.Fatal(err)
	}
}

func TestAPartIsMadeOnceForEachKey(t *testing.T) {
	s := open(t)
	var made atomic.Int32
	find := func(k any) *piece {
		p, err := PartOf(s, k, func(of *Session) *piece {
			if of != s {
				t.Error("it is made for another session")
			}
			made.Add(1)
			return new(piece)
		})
		if err != nil {
			t.Error(err)
		}
		return p
	}
	found := make([]*piece, 8)
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { found[i] = find(key("a")) })
	}
	wg.Wait()
	if all := slices.Compact(found); len(all) != 1 || made.Load() != 1 {
		t.Errorf("%d were made, and %d found", made.Load(), len(all))
	}
	type another string
	if found[0] == find(key("b")) || found[0] == find(another("a")) || found[0] != find(key("a")) ||
		made.Load() != 3 {
		t.Errorf("keys and parts do not agree; %d were made", made.Load())
	}
}

func TestAClosedSessionHasNoParts(t *testing.T) {
	s := open(t)
	add(t, s, "a", nil)
	end(t, s)
	for _, k := range []key{"a", "b"} {
		p, err := PartOf(s, k, func(*Session) *piece {
			t.Error("one was made")
			return new(piece)
		})
		if p != nil || !errors.Is(err, failure.ErrClosed) {
			t.Errorf("%v, %v", p, err)
		}
	}
}

func TestShutdownEndsAllPartsAtOnceThenTheWorkThenTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := make(chan string, 10)
		s := open(t)
		s.onEnd = func() { order <- "the rest" }
		for _, k := range []key{"first", "second"} {
			add(t, s, k, func(context.Context) error {
				if s.Begin() {
					t.Error("something can begin")
				}
				time.Sleep(time.Second)
				if time.Since(s.born) != time.Second {
					t.Errorf("the %s part has ended after %v", k, time.Since(s.born))
				}
				order <- "a part"
				return nil
			})
		}
		s.Begin()
		go func() {
			defer s.End()
			<-s.Closing()
			time.Sleep(10 * time.Second)
			if order <- "work"; s.Ctx.Err() != nil {
				t.Error("the session's context ended before the work")
			}
		}()
		end(t, s)
		for _, want := range []string{"a part", "a part", "work", "the rest"} {
			if got := <-order; got != want {
				t.Errorf("%s instead of %s", got, want)
			}
		}
		if s.Ctx.Err() == nil {
			t.Error("the session's context lives on")
		}
		if s.Watchdog.Add(&newHold("x").Lease, time.Now().Add(time.Hour), 0) {
			t.Error("the watchdog keeps leases")
		}
	})
}

func TestShutdownTellsWhatPartsCouldNotGiveBack(t *testing.T) {
	s, err := New(&nowhere{}, sound)
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, "a", func(context.Context) error { return io.EOF })
	add(t, s, "b", nil)
	add(t, s, "c", func(context.Context) error { return failure.ErrLost })
	if err := s.Shutdown(bounded(t)); !errors.Is(err, io.EOF) || !errors.Is(err, failure.ErrLost) {
		t.Errorf("%v", err)
	}
	if err := s.Shutdown(bounded(t)); err != nil {
		t.Errorf("once more: %v", err)
	}
}

func TestASecondShutdownWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		s := open(t)
		s.onEnd = func() { ended++ }
		add(t, s, "a", func(context.Context) error {
			time.Sleep(10 * time.Second)
			return io.EOF
		})
		first := make(chan error, 1)
		go func() { first <- s.Shutdown(bounded(t)) }()
		synctest.Wait()

		impatient, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := s.Shutdown(impatient)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(s.born) != time.Second {
			t.Errorf("with a context that ended first: %v, after %v", err, time.Since(s.born))
		}
		if err := s.Shutdown(bounded(t)); err != nil || time.Since(s.born) != 10*time.Second || ended != 1 {
			t.Errorf("%v, after %v, with %d ends", err, time.Since(s.born), ended)
		}
		if err := <-first; err != io.EOF || ended != 1 {
			t.Errorf("the first: %v, with %d ends", err, ended)
		}
		for range 100 {
			if err := s.Shutdown(impatient); err != nil {
				t.Fatalf("after the end of the first, with a context that has ended: %v", err)
			}
		}
	})
}

func TestShutdownLeavesTheRestToTheLeasesWhenItsContextEnds(t *testing.T) {
	stuck := map[string]func(t *testing.T, s *Session){
		"a part": func(t *testing.T, s *Session) {
			add(t, s, "a", func(context.Context) error { <-s.Ctx.Done(); return nil })
		},
		"work": func(_ *testing.T, s *Session) {
			s.Begin()
			go func() { <-s.Ctx.Done(); s.End() }()
		},
	}
	for name, stick := range stuck {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := false
				s := open(t)
				s.onEnd = func() { ended = true }
				stick(t, s)
				ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, failure.ErrLost)
				defer cancel()
				err := s.Shutdown(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, failure.ErrLost) ||
					!strings.Contains(err.Error(), "not all was given back") {
					t.Errorf("%v", err)
				}
				if time.Since(s.born) != time.Second || !ended || s.Ctx.Err() == nil {
					t.Errorf("after %v: ended: %v, context: %v", time.Since(s.born), ended, s.Ctx.Err())
				}
				if err := s.Shutdown(bounded(t)); err != nil {
					t.Errorf("once more: %v", err)
				}
			})
		})
	}
}
