//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository makes a Git repository with these files, by their names.
func repository(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
	return dir
}

// problems runs the check in dir. It returns the output of the check, and the lines of its error, which are
// the problems.
func problems(t *testing.T, dir string, linksAlone bool) (output string, errs []string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	if err := run(t.Context(), dir, linksAlone, nil, nil, &out); err != nil {
		errs = strings.Split(err.Error(), "\n")
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	return out.String(), errs
}

func TestLinksMustLeadSomewhere(t *testing.T) {
	dir := repository(t, map[string]string{
		".gitignore": "made\n",
		"made":       "not part of a checkout",
		"a.md": "# A `b`, and C_d!\n## Twice\n## Twice\n" +
			"[1](#a-b-and-c_d) [2](#twice-1) [3](docs/b.md#top) [4](docs) [5](https://example.com/x#y) " +
			"<https://example.com> ![6](docs/p.svg)\n\n" +
			"| [7][later] | |\n|-|-|\n| [8](docs/b.md) | |\n\n[later]: docs/b.md#top\n",
		"docs/b.md":  "Top\n===\n[up](../a.md#twice)\n",
		"docs/p.svg": "",
		"wrong.md": "[1](none.md)\n\n[2](a.md#thrice) [3](#none)\n\n- [4](../x.md)\n- [5](/a.md)\n- " +
			"[6](made)\n- [7](https:///x) ![8](none.svg)\n" +
			"- [9](docs/p.svg#x)\n",
	})
	_, errs := problems(t, dir, true)
	want := []string{`wrong.md:1: link to "none.md"`, `wrong.md:3: link to "a.md#thrice"`,
		`wrong.md:3: link to "#none"`, `wrong.md:5: link to "../x.md"`,
		`wrong.md:6: link to "/a.md"`, `wrong.md:7: link to "made"`, `wrong.md:8: link to "https:///x"`,
		`wrong.md:8: link to "none.svg"`,
		`wrong.md:9: link to "docs/p.svg#x"`}
	if len(errs) != len(want) {
		t.Fatalf("found %q, want %q", errs, want)
	}
	for i, err := range errs {
		if !strings.HasPrefix(err, want[i]+": ") {
			t.Errorf("found %q, want %q", err, want[i])
		}
	}
}

const fence = "```"

func sh(directive, commands string) string {
	if directive != "" {
		directive = "<!-- check: " + directive + " -->\n"
	}
	return "\n" + directive + fence + "sh\n" + commands + "\n" + fence + "\n"
}

func goBlock(directive, code string) string {
	return strings.Replace(sh(directive, code), fence+"sh", fence+"go", 1)
}

func TestCommandsAndProgramsAreRun(t *testing.T) {
	dir := repository(t, map[string]string{
		"go.mod": "module github.com/lockline/lockline\n\ngo 1.26\n",
		"x/x.go": "package x\n\nconst X = 41\n",
		"a.md": sh("", "echo first >made; echo one") +
			sh("", "cat made; echo $((1+1))") +
			sh("--flag 7", "echo with") +
			sh("skip, it is far away", "echo never seen | tr a-z A-Z") +
			sh("", "exec 3<>/dev/tcp/$(echo localhost:6379 | tr : "+
				"/) && printf '*1\\r\\n$4\\r\\nPING\\r\\n' >&3 && head -1 <&3") +
			sh("in a module of its own", "go get github.com/lockline/lockline/x") +
			goBlock("", "package main\n\nimport \"github.com/lockline/lockline/x\"\n\nfunc main() { "+
				"println(x.X + 1) }") +
			goBlock("inside func(s string) error", "return errors.New(s)") +
			goBlock("package", "package y\n\nvar Y = 1") +
			goBlock("test", "package y\n\nimport "+
				"(\n\t\"testing\"\n\n\t\"github.com/lockline/lockline/x\"\n)\n\nfunc TestX(t *testing.T) { "+
				"t.Log(\"x is\", x.X) }") +
			"\n" + fence + "text\nneither\n" + fence + "\n",
	})
	out, errs := problems(t, dir, false)
	if len(errs) > 0 {
		t.Errorf("%q", errs)
	}
	for _, want := range []string{"\none\n", "\nfirst\n2\n", "\nwith --flag 7\n", "skipped: it is far away\n",
		"\n+PONG", "\n42\n", "x is 41\n",
		"5 blocks of commands and 4 of Go were run or compiled, 1 skipped"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
	if strings.Contains(out, "NEVER SEEN") {
		t.Errorf("what was to be skipped was run:\n%s", out)
	}
}

func TestMistakesThatLockvetFindsAreTold(t *testing.T) {
	files := map[string]string{
		"go.mod": "module github.com/lockline/lockline\n\ngo 1.26\n",
		"rlock/rlock.go": "package rlock\n\nimport \"context\"\n\ntype Hold struct{}\n\n" +
			"func Lock(ctx context.Context) (context.Context, *Hold, error) { return ctx, nil, nil }\n",
		"a.md": sh("in a module of its own", "go get github.com/lockline/lockline/rlock") +
			goBlock("package", "package y\n\nimport (\n\t\"context\"\n\n"+
				"\t\"github.com/lockline/lockline/rlock\"\n)\n\nfunc Y(ctx context.Context) error {\n"+
				"\t_, _, err := rlock.Lock(ctx)\n\treturn err\n}"),
	}
	lockvet := filepath.Join("..", "..", "contrib", "lockvet")
	err := filepath.WalkDir(lockvet, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil || strings.HasSuffix(name, "_test.go"):
			return err
		case d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		text, err := os.ReadFile(name)
		files[strings.TrimPrefix(filepath.ToSlash(name), "../../")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, errs := problems(t, repository(t, files), false)
	if len(errs) != 1 || !strings.HasPrefix(errs[0], "a.md:9: ") ||
		!strings.Contains(out, "the result that ends this Lock is discarded") {
		t.Errorf("found %q, want an error in line 9; output:\n%s", errs, out)
	}
}

func TestWhatFailsIsTold(t *testing.T) {
	dir := repository(t, map[string]string{
		"go.mod": "module github.com/lockline/lockline\n\ngo 1.26\n",
		"a.md": sh("", "false\necho not reached") +
			goBlock("", "package main\n\nfunc main() { panic(1) }") +
			goBlock("inside func()", "no Go") +
			goBlock("package", "package y\n\nvar Y = none") +
			sh("skip,", "echo skipped without a reason") +
			sh("rubbish", "echo rubbish") +
			"<!-- check: --nothing -->\n\nfollows\n" +
			goBlock("test", "package y\n\nimport \"testing\"\n\nfunc TestY(t *testing.T) { t.Fail() }"),
	})
	out, errs := problems(t, dir, false)
	lines := map[string]bool{}
	for _, err := range errs {
		if place, _, ok := strings.Cut(err, ": "); ok {
			lines[place] = true
		}
	}
	for _, want := range []string{"a.md:3", "a.md:8", "a.md:15", "a.md:20", "a.md:27",
		"a.md:32", "a.md:34", "a.md:40"} {
		if !lines[want] {
			t.Errorf("nothing is wrong at %s: %q", want, errs)
		}
	}
	if strings.Contains(out, "\nnot reached") {
		t.Errorf("a block went on after a command that failed:\n%s", out)
	}
	if _, errs := problems(t, repository(t, map[string]string{"a.md": "Nothing.\n"}), false); len(errs) != 1 {
		t.Errorf("that there is nothing to check is not told: %q", errs)
	}
}
