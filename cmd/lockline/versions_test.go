package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// versionsOn returns the finding about the versions of the sessions that hold locks on a server, or wait for
// them.
func versionsOn(t *testing.T, m *miniredis.Miniredis) judgment {
	t.Helper()
	o := &operator{prefix: "lockline", kinds: lockKinds, pattern: "*"}
	testlock.Must(t, o.open(t.Context(), target{URL: "redis://" + m.Addr()}))
	defer o.close()
	states, err := o.list(t.Context())
	testlock.Must(t, err)
	return judgeVersions(states)
}

func TestVersionsOfSessionsAreShownAndSeveralProtocolsAreAFinding(t *testing.T) {
	m := miniredis.RunT(t)
	if got := versionsOn(t, m); got.Status != fine {
		t.Errorf("an empty server: %+v", got)
	}
	rdb := testlock.Client(t, m.Addr())
	hold := testlock.Take(t, rlock.New(testlock.NewSession(t, rdb, rlock.WithLabel("till 3")), "x"))
	defer testlock.Unlock(t, hold)
	s := testlock.NewSession(t, rdb)
	begin(t, rlock.New(s, "x"), rlock.New(s, "x").Inspect, s)

	present := fmt.Sprintf("lockline devel, protocol %d", protocol.Version)
	if got := versionsOn(t, m); got.Status != fine || got.Found != "sessions: 2 with "+present {
		t.Errorf("one protocol: %+v", got)
	}
	out, _, _ := operate(t, m.Addr(), "inspect", "x")
	if !strings.Contains(out, "with "+present) || strings.Count(out, "protocol") != 1 {
		t.Errorf("inspect shows\n%s", out)
	}
	var listed []lockState
	out, _, _ = operate(t, m.Addr(), "ls", "--json")
	testlock.Must(t, json.Unmarshal([]byte(out), &listed))
	want := speaks{protocol.Version, "devel"}
	if len(listed) != 1 || listed[0].Holder.speaks != want || listed[0].Queue[0].speaks != want {
		t.Errorf("ls --json shows %s", out)
	}

	fields := strings.Fields(m.HGet("lockline:r:{x}:w", listed[0].Queue[0].Owner))
	other := fmt.Sprintf("; without protocol %d: process 12 on there (no label)", protocol.Version)
	for info, found := range map[string]string{
		"12@there ": "sessions: 1 with a version that is not known; 1 with " + present +
			other,
		"12@there/9:v3.1.0": "sessions: 1 with " + present + "; 1 with lockline v3.1.0, protocol 9" +
			other,
	} {
		m.HSet("lockline:r:{x}:w", listed[0].Queue[0].Owner, strings.Join(fields[:4], " ")+" "+info)
		got := versionsOn(t, m)
		if got.Status != warning || got.Found != found || got.Do == "" {
			t.Errorf("%q: %+v", info, got)
		}
		out, _, _ := operate(t, m.Addr(), "inspect", "x")
		if _, line, _ := strings.Cut(out, "waiter"); !strings.Contains(line, "version") &&
			!strings.Contains(line, "lockline v3.1.0, protocol 9") {
			t.Errorf("%q: inspect shows\n%s", info, out)
		}
	}
}

func TestAKeyOfAnotherProtocolIsAFinding(t *testing.T) {
	m := miniredis.RunT(t)
	m.HSet("lockline:r:{x}", "s:1", "1", "t", "946684800000000")
	got := versionsOn(t, m)
	want := fmt.Sprintf(`names with keys that protocol %d did not write: "x" (reentrant); `,
		protocol.Version)
	if got.Status != warning || !strings.HasPrefix(got.Found, want) {
		t.Errorf("%+v", got)
	}
}

func TestAnotherProtocolThanTheToolsIsAFinding(t *testing.T) {
	party := party{Owner: "a:1", Session: "a", PID: 12, speaks: speaks{protocol.Version + 1, "v9.0.0"}}
	got := judgeVersions([]lockState{{Holders: []holder{{party: party}}}})
	if got.Status != warning || !strings.Contains(got.Found, "and this tool has protocol") {
		t.Errorf("%+v", got)
	}
}
