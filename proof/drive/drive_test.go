package drive

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/script"
)

func TestWorlds(t *testing.T) {
	for _, w := range Worlds() {
		if *only == "" && !w.Small || *only != "" && *only != "all" && *only != w.Name {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			if *bound >= 0 {
				w.Detours = *bound
			}
			if *replay != "" {
				r := Replay(t, w, script.Text, strings.Split(*replay, "; "))
				t.Log("\n" + strings.Join(r.Events, "\n"))
				if r.Failure != nil {
					t.Error(r.Failure)
				}
				return
			}
			r := Explore(t, w, script.Text, *most, *atMost)
			t.Logf("%s: %v", w.Name, r)
			if r.Failure != nil {
				again := Replay(t, w, script.Text, r.Path)
				t.Errorf("%s\nagain with -world %s -replay '%s'\nthe same again: %v",
					r.Failure, w.Name, strings.Join(r.Path, "; "), again.Failure)
				t.Log("\n" + strings.Join(again.Events, "\n"))
			}
			if w.Small && !r.Complete && r.Failure == nil {
				t.Error("a small world is to be explored whole")
			}
		})
	}
}
