package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// viewed returns the view that the Sentinel at addr has of a healthy group of three. pairs are fields and
// values that replace some of this view.
func viewed(addr string, pairs ...string) sentinelView {
	v := sentinelView{addr: addr, master: map[string]string{"ip": "10.0.0.1", "port": "6379", "quorum": "2",
		"num-other-sentinels": "2", "down-after-milliseconds": "5000"}}
	for pair := range slices.Chunk(pairs, 2) {
		v.master[pair[0]] = pair[1]
	}
	return v
}

func TestDoctorJudgesSentinels(t *testing.T) {
	frozen := func(addr string) sentinelView {
		return sentinelView{addr: addr, err: errors.New("i/o timeout")}
	}
	denied := func(addr string) sentinelView {
		return sentinelView{addr: addr, err: errors.New("NOPERM this user has no permissions")}
	}
	stuck := viewed("a")
	stuck.quorum = errors.New("NOQUORUM 1 usable Sentinels")
	for name, test := range map[string]struct {
		views []sentinelView
		want  string // check and status of all findings about the group
		found string
	}{
		"a healthy group": {[]sentinelView{viewed("a"), viewed("b"), viewed("c")}, "quorum ok, down-after ok",
			"3 of 3 answer, 2 are needed"},
		"one is frozen": {[]sentinelView{viewed("a"), frozen("b"), viewed("c")},
			"quorum warning, down-after ok", "2 of 3 answer"},
		"two are frozen": {[]sentinelView{viewed("a"), frozen("b"), frozen("c")},
			"quorum failure, down-after ok", "1 of 3 answer"},
		"the third is not in the URL": {[]sentinelView{viewed("a"), viewed("b")},
			"quorum warning, down-after ok", "2 of 3 answer"},
		"a quorum of all": {
			[]sentinelView{viewed("a", "quorum", "3"), viewed("b", "quorum", "3"), frozen("c")},
			"quorum failure, down-after ok", "3 are needed"},
		"cut off from each other": {[]sentinelView{stuck, viewed("b"), viewed("c")},
			"quorum failure, down-after ok", "NOQUORUM"},
		"one alone": {[]sentinelView{viewed("a", "num-other-sentinels", "0", "quorum", "1")},
			"quorum warning, down-after ok", "1 of 1"},
		"two of them may not be asked": {[]sentinelView{viewed("a"), denied("b"), denied("c")},
			"quorum ok, down-after ok", ""},
		"none may be asked": {[]sentinelView{denied("a")}, "", ""},
		"a long timeout": {
			[]sentinelView{viewed("a"), viewed("b"), viewed("c", "down-after-milliseconds", "120000")},
			"quorum ok, agreement warning, down-after warning", "down-after-milliseconds 120000"},
		"other masters": {[]sentinelView{viewed("a"), viewed("b"), viewed("c", "ip", "10.0.0.2")},
			"quorum ok, agreement warning, down-after ok", "10.0.0.2:6379"},
	} {
		var group, texts []string
		for _, f := range judgeSentinels("m", test.views, 30*time.Second) {
			texts = append(texts, f.Found)
			if !strings.HasPrefix(f.Server, "Sentinel ") {
				group = append(group, f.Check+" "+string(f.Status))
			}
			if (f.Status == fine) != (f.Do == "") || f.Found == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got := strings.Join(group, ", "); got != test.want ||
			!strings.Contains(strings.Join(texts, "\n"), test.found) {
			t.Errorf("%s: %s, want %s: %q", name, got, test.want, texts)
		}
	}
}

func TestTheMasterIsKnownIfAllSentinelsThatAnswerNameIt(t *testing.T) {
	frozen := sentinelView{addr: "f", err: errors.New("i/o timeout")}
	for want, views := range map[string][]sentinelView{
		"10.0.0.1:6379": {viewed("a"), frozen, viewed("c")},
		"":              {viewed("a"), viewed("b", "ip", "10.0.0.2")},
	} {
		if got := masterOfAll(views); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
