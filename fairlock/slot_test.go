package fairlock_test

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// While a slot of a Cluster moves, the second copy of a request does not name the keys of the queue, which
// often do not exist. It must not free a lock and hand it over to nobody.
func TestARequestWithoutTheQueuesKeysChangesNothingIfOthersWait(t *testing.T) {
	requests := map[string]func(token string) []any{
		"release": func(token string) []any { return []any{"s:1", token, "lockline:s:", 60000, 0, 0} },
		"force":   func(string) []any { return []any{"lockline:s:", 60000, ""} },
		"inspect": func(string) []any { return nil },
	}
	for name, argv := range requests {
		for _, waiter := range []bool{false, true} {
			simulated(t, func(t *testing.T, w *world) {
				token := strings.Fields(w.ask("s:1"))[2]
				if waiter {
					w.ask("s:2")
				}
				before := w.Dump()
				reply, err := w.scriptOn([]string{lockKey}, name, argv(token)...)
				switch {
				case !waiter:
					testlock.Must(t, err)
				case err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN "):
					t.Errorf("%s: %q, %v", name, reply, err)
				case w.Dump() != before:
					t.Errorf("%s: the data became\n%s\nfrom\n%s", name, w.Dump(), before)
				}
			})
		}
	}
}
