package fairlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// An older version of Lockline holds the lock. Its hash has another layout, with the owner as the name of a
// field. Nobody gets the lock until this hash has expired, and the errors of all calls say why.
func TestALockOfAnOlderVersionIsAnErrorAndHasNoSecondHolder(t *testing.T) {
	for letter, newMutex := range queuedKinds {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			key := "lockline:" + letter + ":{x}"
			w.HSet(key, "s:1", "1", "t", "946684800000000", "s", "0", "d", "12@there ")
			w.HSet(key+":t", "t", "946684800000000", "l", "946684799000999", "z", "946684800000000")
			w.SetTTL(key, 30*time.Second)
			w.SetTTL(key+":t", time.Minute)
			before := w.Dump()
			s := testlock.NewSession(t, w.Client)
			m := newMutex(s, "x")
			wait := rlock.WaitAtMost(10 * time.Second)
			calls := map[string]func() error{
				"TryLock":          func() error { _, _, err := m.TryLock(bg); return err },
				"Lock":             func() error { _, _, err := m.Lock(bg, wait); return err },
				"Inspect":          func() error { _, err := m.Inspect(bg); return err },
				"ForceUnlock":      func() error { _, err := m.ForceUnlock(bg); return err },
				"ForceUnlockToken": func() error { _, err := m.ForceUnlockToken(bg, 5); return err },
			}
			if letter == "f" {
				calls["Leader"] = func() error { _, _, err := election.New(s, "x").Leader(bg); return err }
			}
			for name, call := range calls {
				err := call()
				if err == nil || !strings.Contains(err.Error(), "an older version of Lockline") ||
					!strings.Contains(err.Error(), key) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if after := w.Dump(); after != before {
				t.Errorf("the data became\n%s\nfrom\n%s", after, before)
			}
			time.Sleep(30 * time.Second)
			testlock.Works(t, m)
		})
	}
}
