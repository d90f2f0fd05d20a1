//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// execs runs lockline exec with the URL redis://ADDR and further arguments. It fails the test unless the exit
// code is code, and returns the text of stderr.
func execs(t *testing.T, addr string, code int, args ...string) string {
	t.Helper()
	p := startExec(t, addr, args...)
	p.wantCode(code)
	return p.errOut.String()
}

func TestAServerThatRefusesHelloIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rename-command", "HELLO", "")
	execs(t, server.Addr+"/3", 0, "n", "--", "true")
	if n := testlock.Client(t, server.Addr).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys in database 0", n)
	}
}

func TestAReplicaIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	host, port, _ := strings.Cut(testredis.Start(t).Addr, ":")
	replica := testredis.Start(t, "--replicaof", host, port)
	testlock.Eventually(t, "in sync", func() bool {
		info := replica.Client(t).Info(t.Context(), "replication").Val()
		return strings.Contains(info, "master_link_status:up")
	})
	said := execs(t, replica.Addr, exitTrouble, "--wait", "1s", "n", "--", "true")
	for _, want := range []string{"Redis refused the last request before the wait was over: READONLY",
		"(the server is a replica: name the master, or use ?master_name=NAME behind the URL of --redis)"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q: %s", want, said)
		}
	}
	if out, errOut, code := operate(t, replica.Addr, "demo"); code != exitTrouble || out != "" ||
		!strings.Contains(errOut, "this server is a replica") {
		t.Errorf("demo: exit code %d: %s%s", code, out, errOut)
	}
}

func TestSignalEndsExecWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testlock.Must(t, err)
	defer listener.Close()
	file := filepath.Join(t.TempDir(), "file")
	p := startExec(t, listener.Addr().String(), append([]string{"n"}, self("until", file)...)...)
	conn, err := listener.Accept()
	testlock.Must(t, err)
	defer conn.Close() // no reply is ever sent on this connection
	p.signal(syscall.SIGTERM)
	p.wantCode(128 + int(syscall.SIGTERM))
}

func TestTheWaitBoundsTheFirstContact(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testlock.Must(t, err)
	defer listener.Close() // no program replies on its connections
	for _, scheme := range []string{"redis", "rediss"} {
		began := time.Now()
		said := execs(t, "127.0.0.1:1", exitTrouble,
			"--redis", scheme+"://"+listener.Addr().String(), "--wait", "500ms", "n", "--", "true")
		says := "no answer from Redis at " + listener.Addr().String() + " before the wait was over"
		if took := time.Since(began); took > 4*time.Second || !strings.Contains(said, says) ||
			strings.Contains(said, "--redis must begin with redis://") != (scheme == "rediss") {
			t.Errorf("%s: after %v: %s", scheme, took, said)
		}
	}
}

// locker returns a lock with a client and a session of its own, as another program of the user would have it.
func locker(t *testing.T, addr, name string) *rlock.Mutex {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	session, err := rlock.NewSession(rdb)
	testlock.Must(t, err)
	t.Cleanup(func() {
		session.Close()
		rdb.Close()
	})
	return rlock.New(session, name)
}

// A lockline is a running process of the program lockline.
type lockline struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, errOut safeBuffer
	done        chan struct{}
}

// startExec starts this test binary as lockline exec.
func startExec(t *testing.T, addr string, args ...string) *lockline {
	t.Helper()
	args = append([]string{"exec", "--redis", "redis://" + addr}, args...)
	return start(t, exec.Command(os.Args[0], args...))
}

// caught receives signals that this process would otherwise ignore, for example because a shell has started
// it in the background. A child of a process that ignores a signal ignores the signal, too.
var caught = make(chan os.Signal, 1)

// start starts a command, and kills it when the test ends. It collects the output to stderr. It also collects
// the output to stdout, unless cmd.Stdout is set.
func start(t *testing.T, cmd *exec.Cmd) *lockline {
	t.Helper()
	p := &lockline{t: t, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	cmd.Stderr = &p.errOut
	for _, s := range forwarded {
		if signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	testlock.Must(p.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *lockline) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// code waits until the process has ended, and returns its exit code.
func (p *lockline) code() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(testlock.Patience):
		p.t.Fatalf("lockline exec did not end; stderr: %s", &p.errOut)
		return -1
	}
}

func (p *lockline) wantCode(want int) {
	p.t.Helper()
	if got := p.code(); got != want {
		p.t.Errorf("exit code %d, want %d; stderr: %s", got, want, &p.errOut)
	}
}

// self returns the last arguments of lockline exec. They make it run helper with args.
func self(args ...string) []string { return append([]string{"--", os.Args[0], "helper"}, args...) }

func lines(file string) []string {
	text, _ := os.ReadFile(file)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// has waits until helper has written a line with this prefix to a file, and returns the line.
func has(t *testing.T, file, prefix string) string {
	t.Helper()
	found := ""
	testlock.Eventually(t, prefix+" in "+filepath.Base(file), func() bool {
		i := slices.IndexFunc(lines(file), func(l string) bool { return strings.HasPrefix(l, prefix) })
		if i >= 0 {
			found = lines(file)[i]
		}
		return i >= 0
	})
	return found
}

func TestExecExitCodes(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	_, hold := testlock.Lock(t, locker(t, m.Addr(), "taken"), t.Context())
	t.Cleanup(func() { _ = hold.Unlock(context.Background()) })
	notExecutable := filepath.Join(t.TempDir(), "file")
	testlock.Must(t, os.WriteFile(notExecutable, []byte("#!/bin/sh\n"), 0o600))
	noInterpreter := filepath.Join(t.TempDir(), "script")
	testlock.Must(t, os.WriteFile(noInterpreter, []byte("#!/nonexistent/interpreter\n"), 0o700))
	noFirstLine := filepath.Join(t.TempDir(), "text")
	testlock.Must(t, os.WriteFile(noFirstLine, []byte("echo hi\n"), 0o700))
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	testlock.Must(t, err)
	gone.Close()
	for i, test := range []struct {
		args string
		code int
		says string
	}{
		{"free -- true", 0, ""},
		{"free true", 0, ""},
		{"help -- true", 0, ""},
		{"-- -free -- true", 0, ""},
		{"-- true false", exitTrouble, "the name of a lock is missing"},
		{"--wait 0 -- true -c exit", exitTrouble, "the name of a lock is missing"},
		{"--", exitTrouble, "the name of a lock is missing"},
		{"free -- sh -c exit\t7", 7, ""},
		{"free -- sh -c kill\t-PIPE\t$$", 128 + int(syscall.SIGPIPE), ""},
		{"free -- sh -c exit\t124", 124, ""},
		{"free -- sh -c kill\t-9\t$$", 128 + 9, ""},
		{"free -- sh -c kill\t-15\t$$", 128 + 15, ""},
		{"--wait 0 taken -- true", exitLocked, "held by process " + strconv.Itoa(os.Getpid())},
		{"--wait 1s taken -- true", exitLocked, "not free within 1s"},
		{"--wait 0 free -- true", 0, ""},
		{"--wait 0 -E 7 taken -- true", 7, "not free"},
		{"--wait 0 --conflict-exit-code 255 taken -- true", 255, "not free"},
		{"--wait 0 --conflict-exit-code=0 taken -- true", 0, "not free"},
		{"-E 7 free -- true", 0, ""},
		{"--prefix other --wait 0 taken -- true", 0, ""},
		{"free -- no-such-command-anywhere", exitNotFound, "not found in $PATH\n"},
		{"free -- echo\thi\t|\twc", exitNotFound, "(exec runs no shell: if the words are"},
		{"free -- X=1 true", exitNotFound, "(exec runs no shell"},
		{"free -- /bin/ls\t/tmp", exitNotFound, "(exec runs no shell"},
		{"free -- " + noInterpreter, exitNotFound, "no such file or directory (the file exists, but"},
		{"free -- " + noFirstLine, exitCannotRun, "exec format error (it is no program for this"},
		{"free -- " + notExecutable, exitCannotRun, "permission denied"},
		{"--redis redis://" + gone.Addr().String() + " --wait 0 free -- true", exitTrouble, "refused"},
		{"free", exitTrouble, "command is missing"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			free := fmt.Sprint("free", i)
			args := strings.Fields(strings.NewReplacer("\t", "\x00", "free", free).Replace(test.args))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x00", " ")
			}
			p := startExec(t, m.Addr(), args...)
			p.wantCode(test.code)
			if said := p.errOut.String(); test.says == "" && said != "" ||
				!strings.Contains(said, test.says) {
				t.Errorf("stderr: %q, want %q", said, test.says)
			}
			if state, err := locker(t, m.Addr(), free).Inspect(t.Context()); err != nil || state.Held {
				t.Errorf("left behind: %+v, %v", state, err)
			}
		})
	}
}

func TestExecPassesStdioAndEnvironment(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	last := int64(0)
	for range 3 {
		cmd := exec.Command(os.Args[0], "exec", "a name", "--",
			"sh", "-c", `cat; echo "$LOCKLINE_NAME/$LOCKLINE_TOKEN"; echo err >&2`)
		cmd.Env = append(os.Environ(), "LOCKLINE_REDIS=redis://"+m.Addr())
		cmd.Stdin = strings.NewReader("in ")
		p := start(t, cmd)
		p.wantCode(0)
		said := strings.TrimSpace(strings.TrimPrefix(p.out.String(), "in a name/"))
		token, err := strconv.ParseInt(said, 10, 64)
		if err != nil || token <= last || p.errOut.String() != "err\n" {
			t.Errorf("stdout %q, stderr %q after token %d", &p.out, &p.errOut, last)
		}
		last = token
	}
}

func TestExecSaysThatASemaphoreHasAnotherLimit(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	p := startExec(t, m.Addr(), "--semaphore", "2", "n", "--", "true")
	p.wantCode(0)
	p = startExec(t, m.Addr(), "--semaphore", "5", "n", "--", "true")
	p.wantCode(exitTrouble)
	const says = "it has 2 permits, and --semaphore says 5; " +
		"give the same number, or let a program call SetLimit\n"
	if said := p.errOut.String(); !strings.HasSuffix(said, says) {
		t.Errorf("stderr: %q", said)
	}
}

func TestExecSaysThatItWaitsAtAReplica(t *testing.T) {
	t.Parallel()
	replica := testredis.Start(t).StartReplica(t)
	p := startExec(t, replica.Addr, "n", "--", "true")
	testlock.Eventually(t, "it says so", func() bool {
		return strings.Contains(p.errOut.String(), "waiting; this server is a replica, which grants nothing")
	})
	p.signal(syscall.SIGTERM)
	p.wantCode(exitSignalBase + int(syscall.SIGTERM))
}

func TestExecThatWaitsForAFreeLockNamesWhatCanBeInTheWay(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--min-replicas-to-write 1")
	p := startExec(t, server.Addr, "--wait", "2s", "n", "--", "true")
	p.wantCode(exitTrouble)
	for _, says := range []string{"waiting; it is free at this moment", "lockline doctor", "NOREPLICAS"} {
		if said := p.errOut.String(); !strings.Contains(said, says) {
			t.Errorf("stderr lacks %q: %q", says, said)
		}
	}
}

func TestExecRunsTheCommandOnceReplicasHaveTheLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	p := startExec(t, server.Addr, "--replicas", "1", "n", "--", "true")
	p.wantCode(0)
	args := []string{"--hold-at-least", "1h", "--replicas", "2", "n", "--", "true"}
	p = startExec(t, server.Addr, append([]string{"--lease", "5s"}, args...)...)
	p.wantCode(exitTrouble)
	const says = "--replicas: 1 of 2 replicas have it: context deadline exceeded: " +
		"they have the time of the lease, 5s"
	if said := p.errOut.String(); !strings.Contains(said, says) {
		t.Errorf("stderr: %q", said)
	}
	p = startExec(t, server.Addr, args...)
	testlock.Eventually(t, "it waits for replicas", func() bool {
		state, err := locker(t, server.Addr, "n").Inspect(t.Context())
		return err == nil && state.Held
	})
	p.signal(syscall.SIGTERM)
	p.wantCode(exitSignalBase + int(syscall.SIGTERM))
	if state, err := locker(t, server.Addr, "n").Inspect(t.Context()); err != nil || state.Held {
		t.Errorf("left behind: %+v, %v", state, err)
	}
}

func TestTheLockStaysTakenForAsLongAsExecWasTold(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	p := startExec(t, m.Addr(), "--hold-at-least", "1h", "--note", "order 42", "n", "--", "true")
	p.wantCode(0)
	p = startExec(t, m.Addr(), "--hold-at-least", "1h", "--wait", "0", "n", "--", "true")
	p.wantCode(exitLocked)
	if state, err := locker(t, m.Addr(), "n").Inspect(t.Context()); err != nil || !state.Held ||
		state.Remaining < 50*time.Minute || !state.Unlocked || state.Note != "order 42" {
		t.Errorf("%+v, %v", state, err)
	}
}

func TestALockWhoseCommandDidNotStartIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	addr := theirRedis(t).Addr()
	program := filepath.Join(t.TempDir(), "program")
	testlock.Must(t, os.WriteFile(program, []byte("no program\n"), 0o700))
	for _, kind := range []string{"--prefix lockline", "--fair", "--shared", "--exclusive", "--semaphore 1"} {
		takes := append(strings.Fields(kind), "--hold-at-least", "1h", "--wait", "0")
		execs(t, addr, exitCannotRun, append(takes, "n", "--", program)...)
		free := strings.Fields(strings.Replace(kind, "shared", "exclusive", 1))
		execs(t, addr, 0, append(free, "--wait", "0", "n", "--", "true")...)
	}
}

func TestExecWaitsForTheHolder(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	_, hold := testlock.Lock(t, locker(t, m.Addr(), "n"), t.Context())
	file := filepath.Join(t.TempDir(), "file")
	p := startExec(t, m.Addr(), append([]string{"--wait", "1h", "n"}, self("until", file)...)...)
	testlock.Eventually(t, "lockline exec waits", func() bool { return len(m.PubSubChannels("")) > 0 })
	if _, err := os.Stat(file); err == nil {
		t.Error("the command runs without the lock")
	}
	testlock.Must(t, hold.Unlock(t.Context()))
	if got := has(t, file, "token"); got <= fmt.Sprintf("token %d", hold.Token()) {
		t.Errorf("%s after %d", got, hold.Token())
	}
	note(file+".end", "")
	p.wantCode(40)
}

func TestAWordToAStoppedWardenDoesNotBlock(t *testing.T) {
	t.Parallel()
	theirs, deadline, err := os.Pipe()
	testlock.Must(t, err)
	defer theirs.Close()
	defer deadline.Close()
	g := &group{deadline: deadline}
	said := 0
	for g.until(time.Now()) {
		said++
	}
	if said < 100 {
		t.Errorf("the pipe was full after %d words", said)
	}
	_, err = theirs.Read(make([]byte, 1<<20))
	testlock.Must(t, err)
	if !g.until(time.Now()) {
		t.Error("a word is not told, and there is room")
	}
}

func TestExecSaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()), rlock.WithLabel("till 3"))
	for kind, lock := range map[string]*rlock.Mutex{
		"": rlock.New(session, "n"), "--fair": fairlock.New(session, "n"),
	} {
		t.Run("lock "+kind, func(t *testing.T) {
			t.Parallel()
			hold := take(t, lock)
			args := append(strings.Fields(kind), "n", "--", "true")
			silent := startExec(t, m.Addr(), append([]string{"-q"}, args...)...)
			var short *lockline
			testlock.Eventually(t, "Redis says in time that it is locked", func() bool {
				short = startExec(t, m.Addr(), append([]string{"--wait", "500ms"}, args...)...)
				if code := short.code(); code != exitLocked && code != exitTrouble {
					t.Fatalf("exit code %d; stderr: %s", code, &short.errOut)
				}
				return short.code() == exitLocked
			})
			loud := startExec(t, m.Addr(), args...)
			line := fmt.Sprintf(`lockline: lock "n": waiting; held by process %d on`, os.Getpid())
			testlock.Eventually(t, line, func() bool { return strings.HasPrefix(loud.errOut.String(), line) })
			testlock.Must(t, hold.Unlock(t.Context()))
			silent.wantCode(0)
			loud.wantCode(0)
			if said := loud.errOut.String(); strings.Count(said, "\n") != 1 ||
				!strings.Contains(said, "(till 3), lease ") {
				t.Errorf("it said %q", said)
			}
			if said := silent.errOut.String() + short.errOut.String(); strings.Contains(said, "waiting") {
				t.Errorf("quiet, or short: %q", said)
			}
		})
	}
}

func TestExecInsideItselfSaysSo(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	for what, test := range map[string]struct {
		nested []string // arguments of each exec, the outermost one first
		code   int
	}{
		"a in a":                 {[]string{"a", "a"}, exitTrouble},
		"a in a, without a wait": {[]string{"b", "--wait 0 b"}, exitTrouble},
		"fair":                   {[]string{"--fair c", "--fair c"}, exitTrouble},
		"a in b in a":            {[]string{"d", "e", "d"}, exitTrouble},
		"c in b in a":            {[]string{"f", "g", "h"}, 0},
		"of two kinds":           {[]string{"i", "--fair i"}, 0},
		"with another prefix":    {[]string{"j", "--prefix other j"}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			line := []string{"true"}
			for _, args := range slices.Backward(test.nested) {
				line = slices.Concat([]string{os.Args[0], "exec", "--redis", "redis://" + m.Addr()},
					strings.Fields(args), []string{"--"}, line)
			}
			p := start(t, exec.Command(line[0], line[1:]...))
			p.wantCode(test.code)
			if said := p.errOut.String(); strings.Contains(said, "wait for itself") != (test.code != 0) {
				t.Error(said)
			}
		})
	}
}

func TestExecWaitsForALockThatTheOuterOneHasLost(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	outer := testlock.NewSession(t, testlock.Client(t, m.Addr())).ID()
	take(t, rlock.New(testlock.NewSession(t, testlock.Client(t, m.Addr())), "k"))
	cmd := exec.Command(os.Args[0], "exec", "--redis", "redis://"+m.Addr(), "--wait", "0", "k", "--", "true")
	cmd.Env = append(os.Environ(), ownersVariable+"="+outer)
	start(t, cmd).wantCode(exitLocked)
}

func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	lock := locker(t, m.Addr(), "n")
	_, hold := testlock.Lock(t, lock, t.Context())
	file := filepath.Join(t.TempDir(), "file")
	p := startExec(t, m.Addr(), append([]string{"n"}, self("until", file)...)...)
	testlock.Eventually(t, "lockline exec waits", func() bool { return len(m.PubSubChannels("")) > 0 })
	p.signal(syscall.SIGUSR1) // a signal for the command, which has not started
	p.signal(syscall.SIGTERM)
	p.wantCode(128 + int(syscall.SIGTERM))
	if err := hold.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	_, hold, err := lock.TryLock(t.Context())
	if err != nil {
		t.Errorf("the wait left something behind: %v", err)
	}
	hold.Unlock(t.Context())
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

func TestSignalsAreForwardedAndTheLockIsHeldToTheEnd(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	for _, s := range forwarded {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			lock := locker(t, m.Addr(), s.String())
			file := filepath.Join(t.TempDir(), "file")
			p := startExec(t, m.Addr(), append([]string{s.String()}, self("until", file)...)...)
			has(t, file, "token")
			p.signal(s.(syscall.Signal))
			has(t, file, fmt.Sprintf("signal %d", s))
			if state, err := lock.Inspect(t.Context()); err != nil || !state.Held ||
				state.PID != p.cmd.Process.Pid {
				t.Errorf("the command has not ended, the lock is: %+v, %v", state, err)
			}
			note(file+".end", "")
			p.wantCode(40)
			if state, err := lock.Inspect(t.Context()); err != nil || state.Held {
				t.Errorf("the command has ended, the lock is: %+v, %v", state, err)
			}
		})
	}
}

func TestSignalsIgnoredFromTheStartStayIgnored(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	p := start(t, exec.Command("sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh",
		os.Args[0], "exec", "--redis", "redis://" + m.Addr(), "n"}, self("until", file)...)...))
	has(t, file, "token")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	has(t, file, fmt.Sprintf("signal %d", syscall.SIGUSR1))
	note(file+".end", "")
	p.wantCode(40)
	if slices.Contains(lines(file), fmt.Sprintf("signal %d", syscall.SIGHUP)) {
		t.Error("SIGHUP was forwarded")
	}
}

func TestLeaseIsRenewedWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	lock := locker(t, m.Addr(), "n")
	file := filepath.Join(t.TempDir(), "file")
	const lease = 5 * time.Second
	p := startExec(t, m.Addr(), append([]string{"--lease", lease.String(), "n"}, self("until", file)...)...)
	token := has(t, file, "token")
	// The loop lasts longer than a lease by the server's clock, which is real, so the lease must be renewed.
	for end := time.Now().Add(lease * 6 / 5); time.Now().Before(end); time.Sleep(lease / 10) {
		if state, err := lock.Inspect(t.Context()); err != nil || !state.Held ||
			fmt.Sprintf("token %d", state.Token) != token {
			t.Fatalf("held with %s, and then: %+v, %v", token, state, err)
		}
	}
	note(file+".end", "")
	p.wantCode(40)
}

// endOfBeats reads the file of beat, and returns the latest of the times in it. It fails the test unless beat
// got SIGTERM, and wrote more lines after that.
func endOfBeats(t *testing.T, file string) (last time.Time) {
	t.Helper()
	all := lines(file)
	term := slices.Index(all, fmt.Sprintf("signal %d", syscall.SIGTERM))
	if term < 0 {
		t.Fatal("no SIGTERM")
	}
	if term == len(all)-1 {
		t.Error("no grace between SIGTERM and SIGKILL")
	}
	for _, l := range all {
		if ns, ok := strings.CutPrefix(l, "beat "); ok {
			n, err := strconv.ParseInt(ns, 10, 64)
			if err == nil { // false if the last line is incomplete
				last = time.Unix(0, n)
			}
		}
	}
	return last
}

// This test does not check when the command ends. TestGuardEndsTheCommandInTime does so in fake time, where a
// slow machine does no harm.
func TestCommandDoesNotOutliveALeaseThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	const lease = "5s"

	t.Run("server gone", func(t *testing.T) {
		t.Parallel()
		m := theirRedis(t)
		file := filepath.Join(t.TempDir(), "file")
		p := startExec(t, m.Addr(), append([]string{"--lease", lease, "n"}, self("beat", file)...)...)
		has(t, file, "beat")
		m.Close()
		p.wantCode(exitLost)
		endOfBeats(t, file)
		if said := p.errOut.String(); !strings.Contains(said, "SIGTERM") ||
			!strings.Contains(said, "SIGKILL") {
			t.Errorf("stderr: %q", said)
		}
	})

	t.Run("server frozen", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		addr := server.Addr
		file := filepath.Join(t.TempDir(), "file")
		p := startExec(t, addr, append([]string{"--lease", lease, "n"}, self("beat", file)...)...)
		has(t, file, "beat")
		token := func() int64 {
			state, err := locker(t, addr, "n").Inspect(t.Context())
			if err != nil || !state.Held {
				t.Errorf("the lock is: %+v, %v", state, err)
			}
			return state.Token
		}()
		server.Freeze()
		p.wantCode(exitLost)
		last := endOfBeats(t, file)
		server.Thaw()
		_, hold, err := locker(t, addr, "n").Lock(t.Context())
		next := time.Now()
		if err != nil || hold.Token() <= token {
			t.Errorf("the next holder: token %d after %d, %v", hold.Token(), token, err)
		}
		hold.Unlock(context.Background())
		if !last.Before(next) {
			t.Errorf("alive %v after the next one had the lock", last.Sub(next))
		}
	})
}

func TestExecEndsWithinItsBoundThoughRedisStandsStillAsTheCommandEnds(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	ended := filepath.Join(t.TempDir(), "ended")
	script := fmt.Sprintf("kill -STOP %d && touch %s && exit 7", server.PID(), ended)
	// Without its own bound, exec would wait for the read timeout of the client.
	p := startExec(t, server.Addr+"?read_timeout=25s", "--lease", "2m", "n", "--", "sh", "-c", script)
	p.wantCode(7)
	server.Thaw()
	at, err := os.Stat(ended)
	testlock.Must(t, err)
	if took := time.Since(at.ModTime()); took > 20*time.Second {
		t.Errorf("it ended %v after its command", took)
	}
	if said := p.errOut.String(); !strings.Contains(said, "freeing it failed") {
		t.Errorf("stderr: %q", said)
	}
}

func TestForcedUnlockEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	p := startExec(t, m.Addr(), append([]string{"--lease", "5s", "n"}, self("beat", file)...)...)
	has(t, file, "beat")
	if was, err := locker(t, m.Addr(), "n").ForceUnlock(t.Context()); err != nil || !was {
		t.Fatal(was, err)
	}
	p.wantCode(exitLost)
	endOfBeats(t, file)
	if said := p.errOut.String(); !strings.Contains(said, `lock "n": lost; SIGTERM`) ||
		!strings.Contains(said, "because the lock was lost: it is not in Redis any more: its lease ran out "+
			"there, it was forced, or data was lost (exit code of the command: ") {
		t.Errorf("stderr: %q", said)
	}
}

// startPiped calls startExec. It also returns a function that waits until lockline and all processes that it
// has started have ended.
func startPiped(t *testing.T, addr string, args ...string) (p *lockline, ended func()) {
	t.Helper()
	read, write, err := os.Pipe()
	testlock.Must(t, err)
	t.Cleanup(func() { read.Close() })
	cmd := exec.Command(os.Args[0], append([]string{"exec", "--redis", "redis://" + addr}, args...)...)
	cmd.Stdout = write
	p = start(t, cmd)
	write.Close() // the processes still have it open
	return p, func() {
		t.Helper()
		testlock.Must(t, read.SetReadDeadline(time.Now().Add(testlock.Patience)))
		if _, err := io.Copy(io.Discard, read); err != nil {
			t.Errorf("something lives: %v", err)
		}
	}
}

// The reader of stderr has gone, for example because the connection of ssh has ended.
func TestALossEndsTheCommandInOrderThoughNobodyReadsStderr(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	reads, writes, err := os.Pipe()
	testlock.Must(t, err)
	testlock.Must(t, reads.Close())
	defer writes.Close()
	// The shell redirects stderr to the pipe, because the function start replaces cmd.Stderr.
	cmd := exec.Command("sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh",
		os.Args[0], "exec", "--redis", "redis://" + m.Addr(), "--lease", "5s", "n"},
		self("until", file)...)...)
	cmd.ExtraFiles = []*os.File{writes}
	p := start(t, cmd)
	has(t, file, "token")
	if was, err := locker(t, m.Addr(), "n").ForceUnlock(t.Context()); err != nil || !was {
		t.Fatal(was, err)
	}
	has(t, file, fmt.Sprintf("signal %d", syscall.SIGTERM))
	note(file+".end", "")
	p.wantCode(exitLost)
}

func TestCommandEndsWithLockline(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	p, ended := startPiped(t, m.Addr(), append([]string{"n"}, self("beat", file)...)...)
	has(t, file, "beat")
	p.signal(syscall.SIGKILL)
	ended()
}

func TestWhatHasLeftTheGroupEndsWithTheLock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux tells it")
	}
	m := theirRedis(t)
	apart := func(t *testing.T, name string) (p *lockline, ended func(), file string) {
		file = filepath.Join(t.TempDir(), "file")
		p, ended = startPiped(t, m.Addr(), append([]string{"--lease", "5s", name}, self("apart", file)...)...)
		has(t, file, "beat")
		return p, ended, file
	}

	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		p, ended, file := apart(t, "lost")
		if was, err := locker(t, m.Addr(), "lost").ForceUnlock(t.Context()); err != nil || !was {
			t.Fatal(was, err)
		}
		p.wantCode(exitLost)
		ended()
		if !slices.Contains(lines(file), fmt.Sprintf("signal %d", syscall.SIGTERM)) {
			t.Error("no SIGTERM")
		}
	})

	t.Run("lockline killed", func(t *testing.T) {
		t.Parallel()
		p, ended, _ := apart(t, "killed")
		p.signal(syscall.SIGKILL)
		ended()
	})

	t.Run("the warden stopped", func(t *testing.T) {
		t.Parallel()
		p, ended, _ := apart(t, "stopped")
		testlock.Must(t, syscall.Kill(childOf(t, p.cmd.Process.Pid), syscall.SIGSTOP))
		if was, err := locker(t, m.Addr(), "stopped").ForceUnlock(t.Context()); err != nil || !was {
			t.Fatal(was, err)
		}
		p.wantCode(exitLost)
		ended()
	})
}

// childOf returns the id of the only child of the process parent.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output()
	testlock.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	testlock.Must(t, err)
	return pid
}

func TestCommandEndsInTimeWhileLocklineStandsStill(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	p, ended := startPiped(t, m.Addr(), append([]string{"--lease", "5s", "n"}, self("beat", file)...)...)
	has(t, file, "beat")
	command := childOf(t, childOf(t, p.cmd.Process.Pid))
	p.signal(syscall.SIGSTOP)
	_, hold, err := locker(t, m.Addr(), "n").Lock(t.Context())
	next := time.Now()
	testlock.Must(t, err)
	testlock.Eventually(t, "the command is dead", func() bool {
		return syscall.Kill(command, 0) == syscall.ESRCH
	})
	p.signal(syscall.SIGCONT)
	p.wantCode(exitLost)
	ended()
	for _, l := range lines(file) {
		if ns, ok := strings.CutPrefix(l, "beat "); ok {
			if n, err := strconv.ParseInt(ns, 10, 64); err == nil && !time.Unix(0, n).Before(next) {
				t.Fatalf("alive %v after the next one had the lock", time.Unix(0, n).Sub(next))
			}
		}
	}
	testlock.Must(t, hold.Unlock(t.Context()))
}

func TestWhatACommandLeavesRunsOn(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	execs(t, m.Addr(), 7, "n", "--", "sh", "-c", `"$@" >&- 2>&- & exit 7`, "sh",
		os.Args[0], "helper", "until", file)
	has(t, file, "token")
	note(file+".end", "")
	has(t, file, "end")
}

func TestFilesThatExecWasGivenAreTheCommands(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := filepath.Join(t.TempDir(), "file")
	cmd := exec.Command("sh", "-c", `exec 3>"$0"; exec 4>&3; exec "$@"`, file,
		os.Args[0], "exec", "--redis", "redis://"+m.Addr(), "n", "--",
		"sh", "-c", "echo three >&3; echo four >&4")
	start(t, cmd).wantCode(0)
	if got := lines(file); !slices.Equal(got, []string{"three", "four"}) {
		t.Errorf("in the file: %q", got)
	}
}

func TestFairExecHoldsTheFairLock(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	fair := fairlock.New(testlock.NewSession(t, rdb), "n")
	take(t, rlock.New(testlock.NewSession(t, rdb), "n")) // another lock
	file := filepath.Join(t.TempDir(), "file")
	first := startExec(t, m.Addr(), append([]string{"--fair", "n"}, self("until", file)...)...)
	token := has(t, file, "token")
	if state, err := fair.Inspect(t.Context()); err != nil || state.PID != first.cmd.Process.Pid ||
		fmt.Sprint("token ", state.Token) != token {
		t.Errorf("the fair lock: %+v, %v; %s", state, err, token)
	}
	said := execs(t, m.Addr(), exitLocked, "--fair", "--wait", "0", "n", "--", "true")
	if !strings.Contains(said, fmt.Sprintf("held by process %d on", first.cmd.Process.Pid)) {
		t.Errorf("the holder: %s", said)
	}
	var all []*lockline
	var files []string
	for i := range 3 {
		files = append(files, filepath.Join(t.TempDir(), "file"))
		args := append([]string{"--fair", "n"}, self("until", files[i])...)
		all = append(all, startExec(t, m.Addr(), args...))
		testlock.Eventually(t, "in the queue", func() bool {
			state, err := fair.Inspect(t.Context())
			return err == nil && len(state.Queue) == i+1 && state.Queue[i].PID == all[i].cmd.Process.Pid
		})
	}
	note(file+".end", "")
	first.wantCode(40)
	last := token
	for i := range all { // the processes get the lock in the order in which they came
		if token = has(t, files[i], "token"); token <= last {
			t.Errorf("%s after %s", token, last)
		}
		last = token
		note(files[i]+".end", "")
		all[i].wantCode(40)
	}
}

// The first lease of a fair lock that is handed over is at most the waiter timeout, so it is shorter than the
// grace. This must not end the command, because the next renewal extends the lease.
func TestALongGraceDoesNotEndACommandThatWasHandedTheLock(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	hold := take(t, fairlock.New(testlock.NewSession(t, testlock.Client(t, m.Addr())), "n"))
	file := filepath.Join(t.TempDir(), "file")
	args := append([]string{"--fair", "--lease", "90s", "--grace", "30s", "n"}, self("until", file)...)
	p := startExec(t, m.Addr(), args...)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	testlock.Eventually(t, "in the queue", func() bool {
		state, err := fairlock.New(session, "n").Inspect(t.Context())
		return err == nil && len(state.Queue) == 1
	})
	testlock.Must(t, hold.Unlock(t.Context()))
	has(t, file, "token")
	p.signal(syscall.SIGUSR1)
	has(t, file, fmt.Sprintf("signal %d", syscall.SIGUSR1))
	note(file+".end", "")
	p.wantCode(40)
	if slices.Contains(lines(file), fmt.Sprintf("signal %d", syscall.SIGTERM)) {
		t.Errorf("SIGTERM; stderr: %s", &p.errOut)
	}
}

func TestExecsOfOneNameNeverOverlap(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	counter, tokens := filepath.Join(t.TempDir(), "counter"), filepath.Join(t.TempDir(), "tokens")
	testlock.Must(t, os.WriteFile(counter, []byte("0"), 0o600))
	const workers, rounds = 4, 5
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				args := []string{"exec", "--redis", "redis://" + m.Addr(), "n"}
				p := exec.Command(os.Args[0], append(args, self("increment", counter, tokens)...)...)
				if out, err := p.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
	wg.Wait()
	if count, err := readCounter(counter); err != nil || count != workers*rounds {
		t.Errorf("%d increments of %d, %v", count, workers*rounds, err)
	}
	if all := lines(tokens); len(all) != workers*rounds || !slices.IsSorted(all) ||
		len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("tokens do not grow: %q", all)
	}
}

func TestExecTakesShares(t *testing.T) {
	t.Parallel()
	addr := theirRedis(t).Addr()
	s := testlock.NewSession(t, testlock.Client(t, addr))
	exec := func(want int, args ...string) {
		t.Helper()
		args = append([]string{"exec", "--wait", "1s", "-q"}, args...)
		if out, errOut, code := operate(t, addr, args...); code != want {
			t.Errorf("%v: exit code %d, want %d: %s%s", args, code, want, out, errOut)
		}
	}
	_, reads, err := rwlock.New(s, "x").RLock(t.Context())
	testlock.Must(t, err)
	exec(0, "--shared", "x", "--", "true")
	exec(exitLocked, "--exclusive", "x", "--", "true")
	exec(0, "x", "--", "true") // another lock
	testlock.Must(t, reads.Unlock(t.Context()))
	_, writes, err := rwlock.New(s, "x").Lock(t.Context())
	testlock.Must(t, err)
	exec(exitLocked, "--shared", "x", "--", "true")
	testlock.Must(t, writes.Unlock(t.Context()))
	exec(0, "--exclusive", "x", "--", "true")
	hold := take(t, rlock.New(s, "x"))
	for _, flag := range []string{"--fair=false", "--shared=false", "--exclusive=false"} {
		exec(exitLocked, "--wait", "0", flag, "x", "--", "true") // the same lock as without the flag
	}
	exec(0, "--fair=false", "--shared", "x", "--", "true")
	testlock.Must(t, hold.Unlock(t.Context()))

	_, one, err := semaphore.New(s, "x", 2).Acquire(t.Context(), 1)
	testlock.Must(t, err)
	exec(0, "--semaphore", "2", "x", "--", "true")
	_, two, err := semaphore.New(s, "x", 2).Acquire(t.Context(), 1)
	testlock.Must(t, err)
	exec(exitLocked, "--semaphore", "2", "x", "--", "true")
	testlock.Must(t, one.Unlock(t.Context()))
	testlock.Must(t, two.Unlock(t.Context()))
}
