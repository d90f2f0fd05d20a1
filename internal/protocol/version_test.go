package protocol

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestAHolderInfoSaysVersionsAndInfosWithoutAreRead(t *testing.T) {
	for info, want := range map[string]Info{
		"12@web-7/3:v0.1.0 a b":    {PID: 12, Host: "web-7", Protocol: 3, Library: "v0.1.0", Label: "a b"},
		"12@web-7/3:22a6ecf0abcd ": {PID: 12, Host: "web-7", Protocol: 3, Library: "22a6ecf0abcd"},
		"12@web-7/4":               {PID: 12, Host: "web-7", Protocol: 4},
		"12@web-7 a/3:v1 label":    {PID: 12, Host: "web-7", Label: "a/3:v1 label"},
		"12@web-7":                 {PID: 12, Host: "web-7"},
		"12@odd/host till 3":       {PID: 12, Host: "odd/host", Label: "till 3"},
		"12@odd/host/3:devel a":    {PID: 12, Host: "odd/host", Protocol: 3, Library: "devel", Label: "a"},
		"12@web-7/0:v1 ":           {PID: 12, Host: "web-7/0:v1"},
		"12@web-7/3:v1 a b\tjob/3:v2": {PID: 12, Host: "web-7", Protocol: 3, Library: "v1", Label: "a b",
			Note: "job/3:v2"},
		"12@web-7/3:v1\tjob 9": {PID: 12, Host: "web-7", Protocol: 3, Library: "v1", Note: "job 9"},
		"12@web-7 \tjob 9":     {PID: 12, Host: "web-7", Note: "job 9"},
		"":                     {},
	} {
		if got := ReadInfo("", info); got != want {
			t.Errorf("%q: %+v, want %+v", info, got, want)
		}
	}
	info := HolderInfo(12, "web-7", "till 3")
	want := Info{"s", 12, "web-7", Version, library(), "till 3", "job 9"}
	if got := ReadInfo("s:1", WithNote(info, "job 9")); got != want {
		t.Errorf("%q with a note is read as %+v", info, got)
	}
	if extra := len(info) - len("12@web-7 till 3"); extra > 16 {
		t.Errorf("%q is %d bytes longer than without versions", info, extra)
	}
}

func TestTheVersionOfTheLibraryIsATagOrACommit(t *testing.T) {
	const other = "github.com/somebody/program"
	for want, m := range map[string]debug.Module{
		"v0.3.1":       {Path: module, Version: "v0.3.1"},
		"v1.2.0-rc.1":  {Path: module, Version: "v1.2.0-rc.1"},
		"22a6ecf0abcd": {Path: module, Version: "v0.0.0-20261129065721-22a6ecf0abcd"},
		"12a6ecf0abcd": {Path: module, Version: "v0.3.2-0.20261129065721-12a6ecf0abcd+dirty"},
		"devel":        {Path: module, Version: "(devel)"},
		"v0.3.0-fork": {Path: module, Version: "v0.3.1",
			Replace: &debug.Module{Path: other, Version: "v0.3.0-fork"}},
	} {
		dep := &debug.BuildInfo{Main: debug.Module{Path: other, Version: "v9.0.0"}, Deps: []*debug.Module{&m}}
		if got := libraryIn(dep); got != want {
			t.Errorf("as a dependency, %+v is %q, want %q", m, got, want)
		}
		if got := libraryIn(&debug.BuildInfo{Main: m}); got != want {
			t.Errorf("as the main module, %+v is %q, want %q", m, got, want)
		}
	}
	folder := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: module, Version: "v0.3.1", Replace: &debug.Module{Path: "../lockline"}}}}
	if got := libraryIn(folder); got != "devel" {
		t.Errorf("a folder that replaces the module is %q", got)
	}
	if got := libraryIn(&debug.BuildInfo{Main: debug.Module{Path: other}}); got != "" {
		t.Errorf("a program without the module has %q of it", got)
	}
	if got := library(); got == "" || strings.ContainsAny(got, " /:\t") {
		t.Errorf("of this test, it is %q", got)
	}
}
