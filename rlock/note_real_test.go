package rlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// Lua scripts parse the holder info with patterns, and encode it with cjson. Notes with special characters
// must survive this.
func TestANoteArrivesAsItIs(t *testing.T) {
	t.Parallel()
	type lock interface {
		Inspect(ctx context.Context) (rlock.State, error)
	}
	readers := func(s *rlock.Session) (lock, rlock.Locker) {
		m := rwlock.New(s, "x")
		return m, m.RLocker()
	}
	kinds := map[string]func(s *rlock.Session) (lock, rlock.Locker){
		"rlock":    func(s *rlock.Session) (lock, rlock.Locker) { m := rlock.New(s, "x"); return m, m },
		"fairlock": func(s *rlock.Session) (lock, rlock.Locker) { m := fairlock.New(s, "x"); return m, m },
		"writer":   func(s *rlock.Session) (lock, rlock.Locker) { m := rwlock.New(s, "x"); return m, m },
		"redisson": func(s *rlock.Session) (lock, rlock.Locker) { m := redisson.New(s, "x"); return m, m },
		"readers":  readers,
		"semaphore": func(s *rlock.Session) (lock, rlock.Locker) {
			m := semaphore.New(s, "x", 2)
			return m, m.Locker(1)
		},
	}
	notes := []string{`order "42" \ 100 % ü 日本  two spaces`, "- 7 8 9 -"}
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			rdb := testlock.Shared(t)
			inspected, mine := of(testlock.NewSession(t, rdb, rlock.WithLabel("till 3")))
			_, theirs := of(testlock.NewSession(t, rdb))
			_, refused := of(testlock.NewSession(t, rdb))
			hold := testlock.Take(t, mine, rlock.WithNote(notes[0]))
			got := testlock.Go(testlock.Bounded(t), theirs, rlock.WithNote(notes[1]))
			want := notes[:1]
			switch {
			case kind == "redisson": // Redisson's locks have no queue
			case kind == "readers" || kind == "semaphore":
				other := testlock.Granted(t, got)
				defer testlock.Unlock(t, other)
				want = notes
			default:
				testlock.Eventually(t, "the other waits", func() bool {
					return len(testlock.Inspect(t, inspected).Queue) == 1
				})
				if note := testlock.Inspect(t, inspected).Queue[0].Note; note != notes[1] {
					t.Errorf("the waiter has the note %q", note)
				}
			}
			var shown []string
			for _, h := range testlock.Inspect(t, inspected).Holders {
				shown = append(shown, h.Note)
				if label := map[bool]string{true: "till 3"}[h.Note == notes[0]]; h.Label != label {
					t.Errorf("%q has the label %q", h.Note, h.Label)
				}
			}
			slices.Sort(shown)
			if sorted := slices.Sorted(slices.Values(want)); !slices.Equal(shown, sorted) {
				t.Errorf("the holders have the notes %q, not %q", shown, sorted)
			}
			if len(want) == 1 {
				_, _, err := refused.TryLock(bg)
				var locked *rlock.LockedError
				if !errors.As(err, &locked) || locked.HeldBy().Note != notes[0] {
					t.Errorf("refused by %v", err)
				}
			}
			testlock.Unlock(t, hold)
			if len(want) == 1 { // the lock is handed over to the waiter
				next := testlock.Granted(t, got)
				if note := testlock.Inspect(t, inspected).Note; note != notes[1] {
					t.Errorf("the next holder has the note %q", note)
				}
				testlock.Unlock(t, next)
			}
		})
	}
}
