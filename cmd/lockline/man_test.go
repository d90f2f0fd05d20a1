package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// shared has the files of the folder share, and the command that writes each of them. Archives of releases
// have these files, for packages of operating systems.
var shared = map[string]string{
	"lockline.1":    "lockline man",
	"lockline.bash": "lockline completion bash",
	"_lockline":     "lockline completion zsh",
	"lockline.fish": "lockline completion fish",
}

func TestTheManualAndTheCompletionsAreThoseOfThisVersion(t *testing.T) {
	for name, args := range shared {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errOut); code != exitOK {
			t.Fatalf("%s: exit code %d: %s", args, code, &errOut)
		}
		file := filepath.Join("share", name)
		text, err := os.ReadFile(file)
		testlock.Must(t, err)
		if !bytes.Equal(text, out.Bytes()) {
			command := "go run ./cmd/" + args + " >cmd/lockline/" + filepath.ToSlash(file)
			t.Errorf("%s is not the output of %s: %s", file, args, command)
		}
	}
	files, err := os.ReadDir("share")
	testlock.Must(t, err)
	if len(files) != len(shared) {
		t.Errorf("share has %d files", len(files))
	}
}

func TestTheManualHasEachCommandWithItsOptionsAndKeepsTexts(t *testing.T) {
	var out bytes.Buffer
	root := program(&out, &out)
	text := manual(root)
	escapes := strings.NewReplacer(`\-`, "-", `\e`, `\`, `\fB`, "", `\fR`, "", `\&`, "", `\(dq`, `"`)
	plain := escapes.Replace(text)
	commands := 0
	for _, c := range root.VisibleCommands() {
		commands++
		section, found := plain, false
		if _, section, found = strings.Cut(section, `.SS "`+synopsis(c)); !found {
			t.Errorf("no section for %s", c.Name)
		}
		section, _, _ = strings.Cut(section, "\n.S")
		for line := range strings.Lines(strings.TrimSpace(c.Description)) {
			if !strings.Contains(section, strings.TrimSpace(line)) {
				t.Errorf("%s: the description lacks %q", c.Name, line)
			}
		}
		for _, f := range c.VisibleFlags() {
			if name := f.Names()[0]; name != "help" && !strings.Contains(section, ".TP\n--"+name) {
				t.Errorf("%s: no option --%s", c.Name, name)
			}
		}
	}
	if commands < 10 || !strings.Contains(plain, ".TP\nLOCKLINE_REDIS_FILE\n") {
		t.Errorf("%d commands in\n%s", commands, text)
	}
	for _, escaped := range []string{".P", "'quoted"} {
		if got := escapeMan(escaped); got != `\&`+escaped {
			t.Errorf("%q becomes %q, which is no text", escaped, got)
		}
	}
}
