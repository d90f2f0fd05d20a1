package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// findings returns the lines and the rules that a file breaks, in order.
func findings(t *testing.T, name, src string) (found []string) {
	t.Helper()
	all, err := findAll(repository(t, map[string]string{name: src}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		found = append(found, fmt.Sprintf("%d %s", f.line, f.rule))
	}
	return found
}

func TestEachRuleFindsTheBadExampleAndNotTheGoodOne(t *testing.T) {
	const (
		aboveFunction = "package x\n\n// %s\nfunc grant() {}\n"
		aboveVariable = "package x\n\n// %s\nvar grant int\n"
		behindCode    = "package x\n\nvar grant int // %s\n"
		inFunction    = "package x\n\nfunc f() {\n\t// %s\n\tg()\n}\n"
	)
	hit := map[string]bool{} // the advice of the patterns that matched
	for _, c := range []struct {
		rule, in, bad, good string
	}{
		{"what", aboveFunction, "grant returns what the call got.", "grant returns the grant of the call."},
		{"what", behindCode, "what is wrong with the name", "error of an invalid name"},
		{"what", inFunction, "Whatever the reply says, wait.", "Wait, even if the reply is an error."},
		{"those that", inFunction, "Wake those that wait.", "Wake the waiters."},
		{"those that", inFunction, "Skip the one that is dead.", "Skip the dead waiter."},
		{"those that", inFunction, "The error is that of the last server.",
			"Return the last server's error."},
		{"those that", inFunction, "Those in the queue come first.", "Queued attempts come first."},
		{"pronoun", behindCode, "it may be lost", "the hold may be lost"},
		{"pronoun", behindCode, "that of the holder", "token of the holder"},
		{"pronoun", behindCode, "None is left.", "No holder is left."},
		{"pronoun", behindCode, "one may wait alone", "an attempt may wait alone"},
		{"function is", aboveFunction, "grant is the current grant.", "grant returns the current grant."},
		{"is why", aboveVariable, "grant is until when the lock is held.", "grant is the end of the lease."},
		{"is why", inFunction, "The reply is how many are left.",
			"The reply is the number of holds that are left."},
		{"colon", aboveFunction, "grant: there is room for more.",
			"grant reports whether there is room for more."},
		{"colon", aboveVariable, "grant: the token was deleted.", "grant means that the token was deleted."},
		{"colon", inFunction, "last: Redis writes it first.",
			"Send this last, because Redis writes it first."},
		{"else", inFunction, "else the reply brings the time",
			"Unless the clock is known, the reply sets it."},
		{"else", inFunction, "Wait here; else the lock is lost.", "If nobody waits here, the lock is lost."},
		{"word", inFunction, "The attempt stands in the queue.", "The attempt is queued."},
		{"word", inFunction, "The session asks again.", "The session sends another request."},
		{"word", inFunction, "The holder is told.", "The holder is notified."},
		{"word", inFunction, "A request is under way.", "A request is in flight."},
		{"word", inFunction, "The permits are given back.", "The permits are released."},
		{"word", inFunction, "Wait until the lease is over.", "Wait until the lease has expired."},
		{"word", inFunction, "The hold goes on.", "The hold stays held."},
		{"word", inFunction, "The lease is of its own choice.", "The lease is fixed."},
		{"word", inFunction, "The liveness has passed.", "The waiter timeout has passed."},
		{"word", inFunction, "This session is deaf.", "This session has no subscription."},
		{"word", inFunction, "The session listens there.", "The session is subscribed to that channel."},
		{"word", inFunction, "Store how the holder says of itself who it is.", "Store the holder info."},
		{"word", inFunction, "A late copy must not take the lock.", "A stale copy must not take the lock."},
		{"word", inFunction, "The holder learns this.", "The holder receives this message."},
		{"word", inFunction, "Redis does not mind.", "Redis accepts this."},
	} {
		bad := fmt.Sprintf(c.in, c.bad)
		for _, found := range findings(t, "x/x.go", bad) {
			if rule := strings.SplitN(found, " ", 2)[1]; rule == c.rule {
				hit[c.rule+c.bad] = true
			}
		}
		if !hit[c.rule+c.bad] {
			t.Errorf("%s is not found in\n%s", c.rule, bad)
		}
		good := fmt.Sprintf(c.in, c.good)
		if found := findings(t, "x/x.go", good); len(found) > 0 {
			t.Errorf("%v are found in\n%s", found, good)
		}
		texts, err := ofFile(repository(t, map[string]string{"x.go": bad}), "x.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			for _, f := range check(text) {
				hit[f.rule+": "+f.instead] = true
			}
		}
	}
	for _, r := range rules {
		for _, p := range r.patterns {
			if !hit[r.name+": "+p.instead] {
				t.Errorf("no example breaks the rule %s with the advice %q", r.name, p.instead)
			}
		}
	}
}

func TestThePageListsEachRule(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if !strings.Contains(string(page), "| `"+r.name+"` |") {
			t.Errorf("docs/writing.md does not list the rule %q", r.name)
		}
	}
}

func TestOrdinaryUseIsLeftAlone(t *testing.T) {
	var src strings.Builder
	src.WriteString("package x\n")
	for _, sentence := range []string{
		"What if the server fails? What does the holder notice?",
		"One of the servers is down, and one per client is enough.",
		"Users ask for this, and you may tell them.",
		"A name stands for one lock. The process stood still. The code is easy to tell apart from a value.",
		"The server listens on 127.0.0.1, and Go on Linux is enough. Keep this in mind.",
		"The lease is over 5 s, if not more, else less. That is why both are kept.",
		"If the lock is free, take it, else wait. Something else is needed.",
		"See https://example.com/what-those-that-wait-are-told and `what those that wait get`.",
		`The error says "asked for what is under way" to the caller.`,
		"Call x.asked, isTold, was_told and ask() here. A liveness probe understands outstanding requests.",
		"Send it by [Ask], or [*Told].",
		"For example: a name. The order is as follows: first, second.",
	} {
		fmt.Fprintf(&src, "\n// %s\n", sentence)
	}
	src.WriteString("\nvar d int // other sessions wait\n\nvar e int // both servers are down\n")
	src.WriteString("\nvar a int // one per server\n\nvar b int // 0: none\n\nvar c *int // nil: no limit\n")
	if found := findings(t, "x/x.go", src.String()); len(found) > 0 {
		t.Errorf("%v are found in\n%s", found, src.String())
	}
}

func TestCodeIsNoProse(t *testing.T) {
	const bad = "it is what those that wait are told"
	for name, src := range map[string]string{
		"strings/a.go": "package x\n\nvar a, b = \"// " + bad + "\", `\n// " + bad + "\n`\n\n" +
			"var c = '\"' + '/'\n",
		"directive/a.go": "//go:build what\n\npackage x\n\n//go:generate what those that\n//nolint:what\n" +
			"var a int //nolint:what // " + bad + "\n",
		"license/a.go": "// Copyright 2026. What those that copy this are told.\n\npackage x\n",
		"generated/a.go": "// Code generated by what. DO NOT EDIT.\n\npackage x\n\n" +
			"// " + bad + "\nvar a int\n",
		"output/a_test.go": "package x\n\n" +
			"func Example() {\n\tprintln()\n\t// Output:\n\t// " + bad + "\n\t// told\n}\n\n" +
			"func Example_more() {\n\tprintln()\n\t// Unordered output: " + bad + "\n}\n",
		"example/a.go": "package x\n\n// Lock waits:\n//\n//\tlock() // " + bad + "\n//\n" +
			"// # What those that wait get\n//\n// It does not return early.\nfunc Lock() {}\n",
		"list/a.go":        "package x\n\n// Names:\n//   - solo: one\n//   - crowd: all\nvar a int\n",
		"strings/a.lua":    "local a = '-- " + bad + "'\nlocal b = \"it's -- \\\" " + bad + "\"\n",
		"strings/a.sh":     "echo '# " + bad + "' \"# " + bad + "\" $# ${a#what}\n",
		"page/a.md":        "# What those that wait get\n\n```go\n" + bad + "\n```\n\n<!-- " + bad + " -->\n",
		"links/a.md":       "[Waiters](#what-those-that-wait-are-told) and `what` and ![Title](what.svg).\n",
		"folder/a.txt":     bad + "\n",
		".hidden/a.md":     bad + "\n",
		"docs/a.svg":       "<!-- " + bad + " -->\n",
		"plain/file":       "# " + bad + "\n",
		"name/a.go":        "package x\n\n// ask sends a request.\nfunc ask() {}\n",
		"generic/a.go":     "package x\n\n// A Set is a list.\ntype Set[T any] []T\n",
		"like/a.go":        "package x\n\n// Must is like Lock, but panics.\nfunc Must() {}\n",
		"exempt/reply.lua": "-- Reply: 'K' kept, 'L' lost\n",

		"docs/measurements.md": bad + "\n",
	} {
		if found := findings(t, name, src); len(found) > 0 {
			t.Errorf("%s: %v are found in\n%s", name, found, src)
		}
	}
}

func TestAFindingNamesItsLine(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"x/a.go", "package x\n\n// A sentence. Then\n// those\n// that wait\n// are told.\nvar a int\n",
			[]string{"4 those that", "6 word"}},
		{"x/a.go", "package x\n\n/* A sentence.\n   A request is under way. */\nvar a int\n",
			[]string{"4 word"}},
		{"x/a.go", "package x\n\nvar (\n\t// a is how it ends.\n\ta int // it ends\n\tb int // none\n)\n",
			[]string{"4 is why", "5 pronoun", "6 pronoun"}},
		{"x/a.go", "package x\n\n// f waits.\n//   - the first\n//   - what is next\nfunc f() {}\n",
			[]string{"5 what"}},
		{"x/a.go", "package x\n\ntype t interface {\n\t// Lock is a wait.\n\tLock()\n}\n",
			[]string{"4 function is"}},
		{"x/a.go", "package x\n\nvar a = f(nil /* it is unused */)\n", []string{"3 pronoun"}},
		{"x/a.lua", "-- f is a reply.\nlocal function f()\n  -- This is told.\n  g() -- it ends\nend\n",
			[]string{"1 function is", "3 word", "4 pronoun"}},
		{"x/a.go", "package x\n\n// asks again.\nvar a int\n", []string{"3 word"}},
		{"x/a.lua", "-- f: there are waiters.\nlocal f = function() end\n", []string{"1 colon"}},
		{"x/a.lua", "-- KEYS[1] the hash\n-- ARGV[1] what is\n--         asked\n-- Reply: told\n",
			[]string{"2 what", "3 word", "4 word"}},
		{"x/a.sh", "# f is a command.\nf() { # it runs\n  :\n}\n", []string{"1 function is", "2 pronoun"}},
		{"x/a.md", "# Title\n\nA wait\nis under\nway.\n\n- What waits.\n- One\n  that waits.\n\n" +
			"| what | b |\n|---|---|\n| a | is told |\n\n> Those that wait.\n",
			[]string{"4 word", "7 what", "8 those that", "11 what", "13 word", "15 those that"}},
	} {
		if got := findings(t, c.name, c.src); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q in\n%s", c.name, got, c.want, c.src)
		}
	}
}
