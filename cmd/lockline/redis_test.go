package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestTheURLMayBeInAFile(t *testing.T) {
	m := theirRedis(t)
	m.RequireAuth("secret")
	url := "redis://:secret@" + m.Addr()
	file := filepath.Join(t.TempDir(), "url")
	testlock.Must(t, os.WriteFile(file, []byte(url+"\n"), 0o600))
	const elsewhere = "redis://127.0.0.1:1" // nothing answers
	none := filepath.Join(t.TempDir(), "none")
	for what, test := range map[string]struct {
		url, file string // of the environment
		args      string
		says      string // "" if it works
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
