package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestTheURLMayBeInAFile(t *testing.T) {
	m := theirRedis(t)
	m.RequireAuth("secret")
	url := "redis://:secret@" + m.Addr()
	file := filepath.Join(t.TempDir(), "url")
	testlock.Must(t, os.WriteFile(file, []byte(url+"\n"), 0o600))
	const elsewhere = "redis://127.0.0.1:1" // no server has this address
	none := filepath.Join(t.TempDir(), "none")
	for what, test := range map[string]struct {
		url, file string // LOCKLINE_REDIS and LOCKLINE_REDIS_FILE
		args      string
		says      string // text of the error; "" means no error
	}{
		"option":                          {"", "", "--redis-file " + file, ""},
		"environment":                     {"", file, "", ""},
		"URL in the environment":          {url, "", "", ""},
		"option, URL in the environment":  {elsewhere, "", "--redis-file " + file, ""},
		"URL, file in the environment":    {"", none, "--redis " + url, ""},
		"both options":                    {"", "", "--redis " + url + " --redis-file " + file, "give one"},
		"both variables":                  {url, file, "", "give one"},
		"an option and all variables":     {elsewhere, none, "--redis-file " + file, ""},
		"the other option, all variables": {elsewhere, none, "--redis " + url, ""},
		"no such file":                    {"", "", "--redis-file " + none, "--redis-file: open " + none},
		"a file without a URL":            {"", "", "--redis-file /dev/null", "/dev/null is not a Redis URL"},
		"an empty variable":               {" ", "", "", "--redis (LOCKLINE_REDIS) is not a Redis URL"},
		"a port that is none":             {"redis://host:port", "", "", "(invalid port after host)"},
		"a host that is missing":          {"redis://user:secret", "", "", "(invalid port after host)"},
		"an unknown parameter":            {"", "", "--redis redis://host?foo=1", "(unexpected option: foo)"},
		"a database that is no number": {
			"", "", "--redis redis://user:secret@host/x", `(invalid database number: "x")`,
		},
		"a parameter of TLS without it": {
			"", "", "--redis redis://host?addr=b:1&skip_verify=true", "(skip_verify is for rediss://)",
		},
		"a slash in the password": {
			"", "", "--redis redis://user/secret@host", "must be percent-encoded",
		},
		"a number sign in the password": {
			"", "", "--redis redis://:1/secret#x@host", "must be percent-encoded",
		},
		"a question mark in it": {
			"", "", "--redis redis://:1?secret&x@host", "must be percent-encoded",
		},
		"an ampersand in a parameter": {
			"", "", "--redis redis://host?master_name=m&password=x&secret", "must be percent-encoded",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("LOCKLINE_REDIS", test.url)
			t.Setenv("LOCKLINE_REDIS_FILE", test.file)
			var out, errOut strings.Builder
			line := append([]string{"lockline", "ls"}, strings.Fields(test.args)...)
			code := run(t.Context(), line, &out, &errOut)
			if (code == exitOK) != (test.says == "") || !strings.Contains(errOut.String(), test.says) {
				t.Errorf("exit code %d: %s", code, &errOut)
			}
			if strings.Contains(errOut.String(), "secret") {
				t.Errorf("it tells the password: %s", &errOut)
			}
		})
	}
}

func TestErrorsOfTheDemoNameNoVariablesBecauseItReadsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	testlock.Must(t, os.WriteFile(file, []byte("redis://127.0.0.1:1"), 0o600))
	t.Setenv("LOCKLINE_REDIS_FILE", file)
	for args, says := range map[string]string{
		"--redis nonsense": "--redis is not a Redis URL",
		"--redis redis://127.0.0.1:1 --redis-file " + file: "give one: --redis or --redis-file",
		"--cacert " + file: "--cacert, --cert and --key are for TLS",
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), append([]string{"lockline", "demo"}, strings.Fields(args)...), &out, &errOut)
		if code != exitTrouble || !strings.Contains(errOut.String(), says) {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
	}
}

func TestAnErrorThatRedisRepliesNamesItsAddressAndWhatTheURLLacks(t *testing.T) {
	m := theirRedis(t)
	m.RequireAuth("secret")
	const alone = "; the text before the @ in the URL has no colon, so it is the user: "
	for _, test := range []struct{ before, behind, says string }{
		{"", "", "; the URL has no password: redis://:PASSWORD@HOST:PORT"},
		{"me@", "", alone},
		{"me@", "?addr=" + m.Addr(), alone}, // as in the URL of a Cluster
		{":no@", "", "; the user or the password in the URL is wrong: "},
		{":secret@", "/3", ", database 3)"},
	} {
		if strings.HasSuffix(test.behind, "/3") {
			m.SetError("ERR DB index is out of range")
		}
		for _, command := range []string{"ls", "inspect x", "unlock --force x", "watch x", "exec n -- true"} {
			args := strings.Fields(command)
			line := append([]string{"lockline", args[0], "--redis",
				"redis://" + test.before + m.Addr() + test.behind}, args[1:]...)
			var errOut strings.Builder
			code := run(t.Context(), line, io.Discard, &errOut)
			if said := errOut.String(); code != exitTrouble ||
				!strings.Contains(said, "Redis at "+m.Addr()+test.says) || strings.Count(said, "\n") != 1 {
				t.Errorf("%s: exit code %d: %s, want %s", line, code, said, test.says)
			}
		}
	}
}

func TestTheAddressIsTheOneThatIsDialed(t *testing.T) {
	for url, want := range map[string]string{
		"redis://": "localhost:6379", "redis:///3": "localhost:6379", "redis://a": "a:6379",
		"rediss://u:p@a:1/2": "a:1", "unix:///a/b?db=1": "/a/b", "redis://a:1?addr=b:1": "a:1",
	} {
		if got := (target{URL: url}).host(); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestTheAddressThatNobodyGaveIsSaidToBeTheDefault(t *testing.T) {
	t.Setenv("LOCKLINE_REDIS_FILE", "")
	for _, test := range []struct {
		variable, option string
		byDefault        bool
	}{{"", "", true}, {"redis://a", "", false}, {"", "redis://a", false}} {
		t.Setenv("LOCKLINE_REDIS", test.variable) // Setenv restores the variable after the test
		if test.variable == "" {
			testlock.Must(t, os.Unsetenv("LOCKLINE_REDIS"))
		}
		line := []string{"ls"}
		if test.option != "" {
			line = append(line, "--redis", test.option)
		}
		look := func(_ context.Context, c *cli.Command) error {
			said := targetOf(c).unanswered(0).Error()
			if strings.Contains(said, "at 127.0.0.1:6379, the default without --redis") != test.byDefault {
				t.Errorf("%+v: %s", test, said)
			}
			return nil
		}
		c := &cli.Command{Name: "ls", Flags: redisFlags(), Action: look}
		testlock.Must(t, c.Run(t.Context(), line))
	}
}

func TestAWaitThatMayBeShorterThanARoundTripIsSaidToBe(t *testing.T) {
	at := target{URL: "redis://a:1"}
	const says = "(--wait 2ms may be shorter than a round trip to Redis; "
	if said := at.unanswered(2 * time.Millisecond).Error(); !strings.Contains(said, says) {
		t.Error(said)
	}
	for _, wait := range []time.Duration{0, time.Second} {
		if said := at.unanswered(wait).Error(); strings.Contains(said, "round trip") {
			t.Errorf("%v: %s", wait, said)
		}
	}
}

func TestErrorsDoNotTakeASentinelForRedis(t *testing.T) {
	for url, want := range map[string]string{
		"redis://10.0.0.7":                       "Redis at 10.0.0.7:6379 ",
		"redis://10.0.0.7:26379?master_name=m":   `Redis at the master "m" of the Sentinel 10.0.0.7:26379 `,
		"redis://u:p@10.0.0.7:7?addr=10.0.0.8:7": "Redis at 10.0.0.7:7 ",
	} {
		if got := (target{URL: url}).unanswered(time.Millisecond).Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", url, got)
		}
	}
}
