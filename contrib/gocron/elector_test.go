package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlock "github.com/lockline/lockline/contrib/gocron"
	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A candidate is an Elector with a Run in progress. stop ends this Run, and returns its error. The end of the
// test also calls stop.
type candidate struct {
	*gocronlock.Elector
	stop func() error
}

func campaign(t *testing.T, session *rlock.Session, value string) *candidate {
	e := gocronlock.NewElector(election.New(session, "scheduler"), value)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop := func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return &candidate{e, stop}
}

func (c *candidate) wantLeader(t *testing.T, when string, want error) {
	t.Helper()
	testlock.Settle()
	if err := c.IsLeader(t.Context()); !errors.Is(err, want) {
		t.Errorf("%s: IsLeader: %v, want %v", when, err, want)
	}
	ran := errors.New("it ran")
	err := c.Task(func(context.Context) error { return ran })(t.Context())
	if (want == nil) != (err == ran) || err == nil {
		t.Errorf("%s: the task: %v", when, err)
	}
}

func TestOneMachineRunsAllJobsUntilAnotherOneLeads(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var machines []*machine
		var candidates []*candidate
		for _, name := range []string{"1", "2"} {
			session := testlock.NewSession(t, w.Client)
			c := campaign(t, session, name)
			m := start(t, session, gocron.WithDistributedElector(c))
			_, err := m.scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(c.Task(quick)))
			testlock.Must(t, err)
			machines, candidates = append(machines, m), append(candidates, c)
			time.Sleep(time.Second)
		}
		ran := func(when string, leader, other *machine) {
			t.Helper()
			if a, b := leader.runs.Swap(0), other.runs.Swap(0); a < 10 || b != 0 {
				t.Errorf("%s: %d runs of the leader, and %d of the other one", when, a, b)
			}
		}
		time.Sleep(10 * time.Minute)
		ran("at first", machines[0], machines[1])
		testlock.WantError(t, "Run", candidates[0].stop(), context.Canceled)
		candidates[0].wantLeader(t, "after its end", rlock.ErrNotHeld)
		candidates[1].wantLeader(t, "after the end of the first", nil)
		time.Sleep(10 * time.Minute)
		ran("then", machines[1], machines[0])
	})
}

func TestWhoDoesNotRunDoesNotLead(t *testing.T) {
	c := &candidate{Elector: gocronlock.NewElector(nil, "")}
	testlock.InFakeTime(t, func(t *testing.T) { c.wantLeader(t, "before Run", rlock.ErrNotHeld) })
}

func TestARunEndsWithTheLeadershipAndTheElectorLeadsAgain(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		c := campaign(t, session, "1")
		c.wantLeader(t, "at first", nil)
		begun, ended := make(chan struct{}, 1), make(chan error, 1)
		go func() { ended <- c.Task(untilEnd(begun))(t.Context()) }()
		<-begun
		_, err := fairlock.New(session, "scheduler").ForceUnlock(t.Context())
		testlock.Must(t, err)
		testlock.WantError(t, "the run", testlock.Receive(t, "the run ends", ended), rlock.ErrLost)
		testlock.Eventually(t, "it leads again", func() bool { return c.IsLeader(t.Context()) == nil })
	})
}

func TestALeaderThatIsCutOffIsNoneBeforeAnotherOneLeads(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		c := campaign(t, testlock.NewSession(t, w.Client), "1")
		c.wantLeader(t, "at first", nil)
		w.Down(true)
		time.Sleep(31 * time.Second)
		c.wantLeader(t, "when its lease is over", rlock.ErrNotHeld)
		w.Down(false)
		testlock.Eventually(t, "it leads again", func() bool { return c.IsLeader(t.Context()) == nil })
	})
}

func TestRunEndsWithTheSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		leader, waiting := campaign(t, session, "1"), campaign(t, session, "2")
		testlock.Settle()
		testlock.Must(t, session.Close())
		synctest.Wait()
		for _, c := range []*candidate{leader, waiting} {
			c.wantLeader(t, "after Close", rlock.ErrClosed)
			testlock.WantError(t, "Run", c.stop(), rlock.ErrClosed)
		}
	})
}

func TestIsLeaderSaysWhyACampaignFails(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		before := campaign(t, session, "1")
		before.wantLeader(t, "at first", nil)
		key := w.Keys()[0]
		testlock.WantError(t, "Run", before.stop(), context.Canceled)
		testlock.Must(t, w.Client.FlushDB(t.Context()).Err())
		testlock.Must(t, w.Client.Set(t.Context(), key, "of another program", 0).Err())
		c := campaign(t, session, "1")
		c.wantLeader(t, "with a key of another type", rlock.ErrNotHeld)
		if err := c.IsLeader(t.Context()); !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("IsLeader: %v", err)
		}
		testlock.Must(t, w.Client.Del(t.Context(), key).Err())
		time.Sleep(2 * time.Second)
		c.wantLeader(t, "without that key", nil)
		testlock.WantError(t, "Run", c.stop(), context.Canceled)
	})
}

// An election with one of these mistakes can never work. If Run kept trying, the program would report no
// error, but would never run a job.
func TestRunReturnsTheErrorOfAnElectionThatCannotWork(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		long := strings.Repeat("x", election.MaxValue+1)
		for text, e := range map[string]*gocronlock.Elector{
			"bytes":                  gocronlock.NewElector(election.New(session, "x"), long),
			"the session is nil":     gocronlock.NewElector(election.New(nil, "x"), "1"),
			"is nil or a zero value": gocronlock.NewElector(nil, "1"),
			`the name is empty`:      gocronlock.NewElector(election.New(session, ""), "1"),
		} {
			err := e.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("Run: %v, want %q", err, text)
			}
			if led := e.IsLeader(t.Context()); !errors.Is(led, rlock.ErrNotHeld) || !errors.Is(led, err) {
				t.Errorf("IsLeader after %v: %v", err, led)
			}
		}
	})
}
