package main

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.modified", Value: "false"}}
	built := runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	for _, test := range []struct {
		release string
		info    *debug.BuildInfo
		want    string
	}{
		{"0.1.0", &debug.BuildInfo{Main: debug.Module{Version: "v0.0.9"}, Settings: commit}, "lockline 0.1.0 (0123456789ab, " + built},
		{"v0.1.0", &debug.BuildInfo{}, "lockline 0.1.0 (" + built},
		{"", &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}, "lockline 0.2.0 (" + built},
		{"", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: append(commit[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})},
			"lockline (devel) (0123456789ab+dirty, " + built},
		{"", nil, "lockline (devel) (" + built},
	} {
		if got := versionLine(test.release, test.info); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	defer func(before string) { version = before }(version)
	version = "0.1.0"
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"lockline", "--version"}, &out, &errOut)
	if code != exitOK || !strings.HasPrefix(out.String(), "lockline 0.1.0 (") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("exit code %d: %s%s", code, &out, &errOut)
	}
}
