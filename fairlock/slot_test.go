package fairlock_test

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
)

// While a slot of a Cluster moves, the second copy of a request does not have the keys of the queue, which
// often do not exist. Such a copy must not free a lock for which others wait.
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

// A script with the text of moves before it cannot use a key again that it has deleted. A Cluster behaves
// like this while the slot moves to another node.
const moves = `local original, gone = redis, {}
local redis = setmetatable({}, { __index = original })
for _, how in ipairs({ 'call', 'pcall' }) do
  redis[how] = function(...)
    local _, key = ...
    if key and gone[key] then
      error('Script attempted to access a non local key in a cluster node: ' .. key)
    end
    local reply = original[how](...)
    for _, k in ipairs(KEYS) do
      gone[k] = k == key and original.call('EXISTS', k) == 0 or gone[k]
    end
    return reply
  end
end
`

// The only waiter leaves the queue, so the keys of the queue are deleted.
func TestWhileASlotMovesNoScriptNeedsAKeyAgainThatItHasDeleted(t *testing.T) {
	const channels = "lockline:s:"
	acquire := func(owner string, liveness int) []any {
		return []any{owner, 1, int64(1) << 52, 30000, "", 60000, liveness, channels, "nonce", "1", 0}
	}
	release := func(owner string) []any { return []any{owner, "", channels, 60000, 0, ""} }
	for name, of := range map[string]struct {
		script string
		argv   []any
		free   bool // the lease of s:1 has ended
	}{
		"a newcomer hands over":        {"acquire", acquire("s:3", 15000), true},
		"a try hands over":             {"acquire", acquire("s:3", 0), true},
		"the waiter gets it":           {"acquire", acquire("s:2", 15000), true},
		"the holder hands over":        {"release", release("s:1"), false},
		"the waiter leaves":            {"release", release("s:2"), false},
		"the waiter of a free lock":    {"release", release("s:2"), true},
		"somebody else of a free lock": {"release", release("s:3"), true},
		"an operator hands over":       {"force", []any{channels, 60000, ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				w.ask("s:1")
				w.ask("s:2")
				if of.free {
					testlock.Must(t, w.Client.HSet(bg, lockKey, "ends", 1).Err())
				}
				keys := []string{lockKey, queueKey, waitersKey}
				text := moves + script.Text("lock/"+of.script)
				testlock.Must(t, w.Client.Eval(bg, text, keys, of.argv...).Err())
			})
		})
	}
}
