package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHelpNamesTheCommandsAndTheExitCodes(t *testing.T) {
	for args, want := range map[string][]string{
		"lockline": {"demo", "exec", "ls", "top", "inspect", "watch",
			"unlock", "doctor", "script", "man", "completion"},
		"lockline --help": {"--version", "demo", "exec", "ls", "top", "inspect", "watch", "unlock",
			"doctor", "completion"},
		"lockline demo --help": {"--redis", "--for", "fencing token"},
		"lockline exec --help": {"--wait", "--lease", "--grace", "--fair", "--quiet", "--conflict-exit-code",
			"-E", "--cacert", "123", "124", "125", "126", "127", "LOCKLINE_TOKEN"},
		"lockline ls --help": {"--redis", "--prefix", "--redisson", "--json", "--waits", "SCAN", "WAITING",
			"FIRST"},
		"lockline top --help": {"--redis", "--prefix", "--redisson", "--interval", "Keys:"},
		"lockline unlock -h":  {"--force", "--kind", "--json", "125"},
		"lockline doctor -h":  {"--json", "125", "--also", "--lease"},
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errOut); code != exitOK {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s does not mention %q", args, w)
			}
		}
		if strings.Contains(out.String(), "-process ") || strings.Contains(out.String(), "-warden") {
			t.Errorf("%s shows a command that is none of the user's business", args)
		}
	}
}

func TestWrongArgumentsAreRefusedInOneLine(t *testing.T) {
	t.Setenv("LOCKLINE_REDIS", "redis://"+theirRedis(t).Addr()) // works, so only the arguments are wrong
	for _, args := range []string{
		"lockline nonsense",
		"lockline help --help",
		"lockline completion tcsh",
		"lockline doctor --lease 1ms",
		"lockline ls --waits --redisson",
		"lockline --nonsense",
		"lockline demo extra",
		"lockline demo --for -1s",
		"lockline demo --redis nonsense",
		"lockline exec",
		"lockline exec name",
		"lockline exec name --",
		"lockline exec name --wait 1s -- true", // would run --wait as the command
		"lockline exec --wait soon name -- true",
		"lockline exec --wait -1s name -- true",
		"lockline exec --grace -1s name -- true",
		"lockline exec --shared --exclusive name -- true",
		"lockline exec --fair --semaphore 2 name -- true",
		"lockline exec --semaphore 0 name -- true",
		"lockline exec --semaphore few name -- true",
		"lockline exec -E 256 name -- true",
		"lockline exec -E -1 name -- true",
		"lockline exec -E x name -- true",
		"lockline exec --lease 1ms name -- true",
		"lockline exec --prefix app:r:{x} name -- true",
		"lockline inspect --redisson redisson_lock_token:x",
		"lockline exec --redis nonsense name -- true",
		"lockline demo-process",
		"lockline exec-warden",
		"lockline ls a b",
		"lockline ls --redis nonsense",
		"lockline ls --prefix {",
		"lockline top", // the output is no terminal
		"lockline top a b",
		"lockline top [a",
		"lockline top --interval 1ms",
		"lockline top --json",
		"lockline inspect",
		"lockline inspect a b",
		"lockline inspect --kind nonsense a",
		"lockline inspect --redisson --kind fair a",
		"lockline inspect --redis redis://host?master_name=m&db=x a",
		"lockline watch --interval 0s a",
		"lockline unlock a",
		"lockline doctor extra",
		"lockline version",
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errOut); code != exitTrouble {
			t.Errorf("%s: exit code %d", args, code)
		}
		if text := errOut.String(); out.Len() > 0 || !strings.HasPrefix(text, "lockline: ") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s said %q and %q", args, &out, &errOut)
		}
		for _, goName := range []string{"With", "NewSession", "WaitAtMost", "redis.New"} {
			if text := errOut.String(); strings.Count(text, "lockline: ") != 1 ||
				strings.Contains(text, goName) {
				t.Errorf("%s said %q", args, text)
			}
		}
	}
}

func TestATimeThatMeansSomethingElseIsRefused(t *testing.T) {
	t.Setenv("LOCKLINE_REDIS", "redis://"+theirRedis(t).Addr())
	for args, says := range map[string]string{
		"exec --wait 30 n -- true":               "exec: --wait: 30 has no unit: is it 30s?",
		"exec --wait 30ns n -- true":             "exec: --wait: 30ns is shorter than 1ms",
		"exec --wait -1s n -- true":              "exec: --wait: -1s is shorter than 1ms",
		"exec --wait 100000h n -- true":          "exec: --wait: 100000h0m0s is longer",
		"exec --hold-at-least 30 n -- true":      "exec: --hold-at-least: 30 has no unit: is it 30s?",
		"exec --hold-at-least 30ns n -- true":    "exec: --hold-at-least: 30ns is shorter than 1ms",
		"exec --hold-at-least 100000h n -- true": "exec: --hold-at-least: 100000h0m0s is longer",
		"exec --lease 0 n -- true":               "exec: --lease: 0s is shorter than 10ms",
		"exec --lease 100000h n -- true":         "exec: --lease: 100000h0m0s is longer",
		"exec --grace 5ns n -- true":             "exec: --grace: 5ns is shorter than 1ms",
		"exec --grace 100000h n -- true":         "exec: --grace: 100000h0m0s is longer",
		"watch --interval 0 n":                   "watch: --interval: 0s is shorter than 1ms",
		"watch --interval 5 n":                   "watch: --interval: 5 has no unit: is it 5s?",
		"top --interval 5ns":                     "top: --interval: 5ns is shorter than 1ms",
		"top --interval 100000h":                 "top: --interval: 100000h0m0s is longer",
		"demo --for 5ns":                         "demo: --for: 5ns is shorter than 1ms",
		"demo --for -1s":                         "demo: --for: -1s is shorter than 1ms",
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"lockline"}, strings.Fields(args)...), &out, &errOut)
		if code != exitTrouble || !strings.HasPrefix(errOut.String(), "lockline: "+says) {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
	}
}

func TestAValueThatCannotBeReadIsToldWhatItMustBe(t *testing.T) {
	t.Setenv("LOCKLINE_REDIS", "redis://"+theirRedis(t).Addr())
	const durations = " is not a duration such as 500ms, 30s or 1h30m: " +
		"its units are h, m, s, ms and smaller ones"
	for args, says := range map[string]string{
		"exec --semaphore x n -- true":           `exec: --semaphore: "x" is not a whole number`,
		"exec --replicas 1.5 n -- true":          `exec: --replicas: "1.5" is not a whole number`,
		"exec -E x n -- true":                    `exec: -E: "x" is not a whole number`,
		"exec -E 99999999999999999999 n -- true": `exec: -E: "99999999999999999999" is not a number that`,
		"exec --note a\x01b n -- true":           "exec: --note: the text contains a control character",
		"unlock --force --token abc x":           `unlock: --token: "abc" is not a whole number`,
		"exec --wait 1d n -- true":               `exec: --wait: "1d"` + durations,
		"exec --lease soon n -- true":            `exec: --lease: "soon"` + durations,
		"exec --wait= n -- true":                 `exec: --wait: ""` + durations,
		"demo --for 1week":                       `demo: --for: "1week"` + durations,
		"ls --json=x":                            `ls: --json: "x" is not true or false`,
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"lockline"}, strings.Fields(args)...), &out, &errOut)
		if code != exitTrouble || !strings.HasPrefix(errOut.String(), "lockline: "+says) {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
	}
}

func TestOptionsBeforeTheCommandAreToldTheirPlace(t *testing.T) {
	for args, misplaced := range map[string]bool{
		"lockline --redis redis://a ls": true, "lockline ls --rediss redis://a": false,
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &out, &errOut)
		const says = "put options after the command, as in lockline ls --redis URL"
		if code != exitTrouble || strings.Contains(errOut.String(), says) != misplaced {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
	}
}
