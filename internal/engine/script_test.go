package engine

import (
	"strings"
	"testing"
)

// The common case is before the prelude, but for several locks in one(), which may come to all of it.
func TestAScriptsCommonCaseIsBeforeThePrelude(t *testing.T) {
	body := "common()\n-- PRELUDE\nrest()\n"
	order := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			var ok bool
			if _, text, ok = strings.Cut(text, part); !ok {
				t.Errorf("no %q, or not in its place", part)
			}
		}
	}
	order(NewScript(body, "own()\n").Text(), "local BLOCK = 1000\n", "common()", prelude, "own()", "rest()")
	order(NewScript("rest()\n", "own()\n").Text(), "local BLOCK = 1000\n", prelude, "own()", "rest()")
	order(NewScript("-- TAKE\n-- CONCLUDE\n").Text(), take, conclude)
	order(NewLockSeveral(body).Text(), prelude, "local function one()\n", "common()", "rest()\nend\n", several, lockSeveral)
	order(NewReleaseSeveral(body).Text(), prelude, "local function one()\n", "common()", "rest()\nend\n", several, releaseSeveral)
}
