package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestScriptListsAllAndPrintsOneByNameOrDigest(t *testing.T) {
	call := func(args ...string) (text string, code int) {
		var out bytes.Buffer
		code = run(t.Context(), append([]string{"lockline", "script"}, args...), &out, &out)
		return out.String(), code
	}
	list, _ := call()
	digest, name, _ := strings.Cut(strings.Split(list, "\n")[0], "  ")
	if !strings.Contains(list, "  lock/release\n") || len(digest) != 40 {
		t.Fatal(list)
	}
	for _, which := range []string{name, digest} {
		if text, code := call(which); code != exitOK ||
			!strings.HasPrefix(text, "-- lockline script "+name+"\n") {
			t.Errorf("%s: exit code %d: %s", which, code, text)
		}
	}
	for _, wrong := range [][]string{{"lock/none"}, {"lock/release", "lock/acquire"}} {
		if text, code := call(wrong...); code != exitTrouble {
			t.Errorf("%q: exit code %d: %s", wrong, code, text)
		}
	}
}
