package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDoctorJudgesTheServersOfARedLock(t *testing.T) {
	server := func(name, id, fsync string, ahead time.Duration) []facts {
		return []facts{{server: name, ahead: ahead, config: map[string]string{"appendfsync": fsync},
			info: map[string]string{"run_id": id, "aof_enabled": "1", "role": "master"}}}
	}
	// unasked returns the facts of a server whose user may not read settings.
	unasked := func(info map[string]string) []facts { return []facts{{server: "c", info: info}} }
	a, b, c := server("a", "1", "always", 0), server("b", "2", "always", 0), server("c", "3", "always", 0)
	for name, test := range map[string]struct {
		seen [][]facts
		want string // check and status of each finding
	}{
		"three":                    {[][]facts{a, b, c}, "majority ok, independent ok"},
		"one that does not answer": {[][]facts{a, b, nil}, "majority warning, independent ok"},
		"two that do not answer":   {[][]facts{nil, a, nil}, "majority failure, independent ok"},
		"an even number":           {[][]facts{a, b}, "majority ok, independent ok, number warning"},
		"one that syncs too rarely": {[][]facts{a, b, server("c", "3", "everysec", 0)},
			"majority ok, independent ok, durability warning"},
		"one whose settings are not known": {[][]facts{a, b, unasked(c[0].info)},
			"majority ok, independent ok, durability unknown"},
		"one without a file, and no settings": {[][]facts{a, b, unasked(map[string]string{"run_id": "3"})},
			"majority ok, independent ok, durability warning"},
		"one without INFO and settings": {[][]facts{a, b, unasked(nil)},
			"majority ok, independent ok, durability unknown"},
		"one that refuses": {[][]facts{a, b, {{server: "c", err: errors.New("NOAUTH")}}},
			"majority warning, independent ok"},
		"one that refuses, and this machine's clock is wrong": {[][]facts{
			server("a", "1", "always", time.Hour), server("b", "2", "always", time.Hour),
			{{server: "c", err: errors.New("NOAUTH")}}}, "majority warning, independent ok"},
		"one server twice": {[][]facts{a, b, server("a2", "1", "always", 0)},
			"majority ok, independent failure"},
		"clocks 10 minutes apart": {[][]facts{server("a", "1", "always", -5*time.Minute), b,
			server("c", "3", "always", 5*time.Minute)}, "majority ok, independent ok"},
		"clocks further apart": {[][]facts{server("a", "1", "always", -6*time.Minute), b,
			server("c", "3", "always", 5*time.Minute)}, "majority ok, independent ok, clocks failure"},
	} {
		var got []string
		for _, f := range judgeTogether(test.seen) {
			got = append(got, f.Check+" "+string(f.Status))
			if f.Found == "" || (f.Status == fine) != (f.Do == "") || f.Server == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}

func TestDoctorJudgesTheRateOfAClockByItsMargin(t *testing.T) {
	begun := time.Unix(1_000_000_000, 0)
	for _, test := range []struct {
		server, rtt time.Duration // server is the time that passed there in 10 s
		want        status
	}{
		{10 * time.Second, time.Millisecond, fine},
		{10_090 * time.Millisecond, time.Millisecond, fine},
		{10_110 * time.Millisecond, time.Millisecond, warning},
		{9_890 * time.Millisecond, time.Millisecond, warning},
		{10_110 * time.Millisecond, 50 * time.Millisecond, fine},
		{10 * time.Second, 200 * time.Millisecond, unknown},
		{11 * time.Second, 200 * time.Millisecond, warning},
	} {
		got := judgePace(clockReading{begun, begun, test.rtt},
			clockReading{begun.Add(test.server), begun.Add(10 * time.Second), test.rtt})
		if got.Status != test.want || got.Found == "" || (got.Status == fine) != (got.Do == "") {
			t.Errorf("%v in 10 s, round trips of %v: %+v", test.server, test.rtt, got)
		}
	}
}
