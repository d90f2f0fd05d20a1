//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestExecWaitsForARedisThatRestarts(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Kill()
	for _, args := range [][]string{{"--wait", "60s"}, {}} {
		loud := startExec(t, server.Addr, append(args, "n", "--", "true")...)
		silent := startExec(t, server.Addr, append(args, "-q", "m", "--", "true")...)
		testlock.Eventually(t, "it says for what it waits", func() bool {
			return strings.Contains(loud.errOut.String(), `lock "n": waiting; redis at `+server.Addr)
		})
		server.Restart(t)
		loud.wantCode(0)
		silent.wantCode(0)
		if said := silent.errOut.String(); said != "" || strings.Count(loud.errOut.String(), "\n") != 1 {
			t.Errorf("%v: loud: %q, silent: %q", args, loud.errOut.String(), said)
		}
		server.Kill()
	}
	said := execs(t, server.Addr, exitTrouble, "--wait", "1500ms", "n", "--", "true")
	if !strings.Contains(said, "connection refused (tried for 1.5s)") {
		t.Errorf("the wait has ended: %s", said)
	}
	said = execs(t, server.Addr, exitTrouble, "--wait", "0", "n", "--", "true")
	if !strings.Contains(said, "connection refused") || strings.Contains(said, "tried") {
		t.Errorf("without a wait: %s", said)
	}
	began := time.Now()
	said = execs(t, server.Addr+"x", exitTrouble, "n", "--", "true") // a port that no server can have
	if took := time.Since(began); took > 10*time.Second || strings.Contains(said, "waiting") {
		t.Errorf("an address that time does not mend: after %v, %s", took, said)
	}
}

func TestExecIsSilentAboutALockThatIsTakenIfItIsToBeQuiet(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	session := testlock.NewSession(t, server.Client(t))
	take(t, openReentrant(session, "n"))
	for _, wait := range []string{"0", "100ms"} {
		if said := execs(t, server.Addr, 7, "-q", "--wait", wait, "-E", "7", "n", "--", "true"); said != "" {
			t.Errorf("--wait %s: %s", wait, said)
		}
	}
}

func TestTheFirstContactTakesFromTheTimeOfTheWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ wait, took, least, most time.Duration }{
		{0, time.Minute, 0, 0},
		{time.Minute, 20 * time.Second, 30 * time.Second, 40 * time.Second},
		{time.Minute, time.Hour, protocol.MinTime, protocol.MinTime},
	} {
		c := &contender{execOptions: execOptions{atMost: test.wait}, begun: time.Now().Add(-test.took)}
		if left := c.left(); left < test.least || left > test.most {
			t.Errorf("%v after %v: %v", test.wait, test.took, left)
		}
	}
}

func TestWatchSaysThatRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	out, errOut := &safeBuffer{}, &safeBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"lockline", "watch", "--redis", "redis://" + server.Addr, "x"}, out, errOut)
	}()
	testlock.Eventually(t, "free", func() bool { return strings.Contains(out.String(), "free") })
	testlock.Must(t, server.Client(t).Do(t.Context(), "CLIENT", "PAUSE", "2500", "ALL").Err())
	testlock.Eventually(t, "the end of the silence", func() bool {
		return strings.HasSuffix(errOut.String(), "Redis answers again\n")
	})
	want := "lockline: no answer from Redis at " + server.Addr + " for 1s\n"
	if got := errOut.String(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
		t.Errorf("%s", got)
	}
	cancel()
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit code %d", c)
	}
}

func TestACommandSaysThatItWaitsForASilentRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	testlock.Must(t, server.Client(t).Do(t.Context(), "CLIENT", "PAUSE", "4500", "ALL").Err())
	want := "lockline: no answer from Redis at " + server.Addr + " for 3s\n"
	if _, errOut, code := operate(t, server.Addr, "ls"); code != exitOK || errOut != want {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestDoctorSaysWhatToDoAboutABusyRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--lua-time-limit", "1")
	rdb := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	ended := make(chan error, 1)
	go func() { ended <- rdb.Eval(t.Context(), "while true do end", nil).Err() }()
	testlock.Eventually(t, "it is busy", func() bool {
		err := server.Client(t).Ping(t.Context()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	out, _, code := operate(t, server.Addr, "doctor")
	testlock.Must(t, server.Client(t).ScriptKill(t.Context()).Err())
	<-ended
	if code != exitWrong || !strings.Contains(out, "BUSY") ||
		!strings.Contains(out, "see docs/operations.md#redis-refuses") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
