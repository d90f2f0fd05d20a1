package otellock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

var promtool = sync.OnceValue(func() string {
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("LOCKLINE_REQUIRE_PROMTOOL") != "1" {
		// go test shows the reason of a skip only with -v.
		fmt.Fprintln(os.Stderr, "SKIPPED: the tests of the alerts: "+noPromtool)
	}
	return path
})

const noPromtool = "no promtool in PATH (tools/promtool FOLDER unpacks it on Debian and Ubuntu)"

func needPromtool(t *testing.T) {
	t.Helper()
	switch {
	case promtool() != "":
	case os.Getenv("LOCKLINE_REQUIRE_PROMTOOL") == "1":
		t.Fatal(noPromtool)
	default:
		t.Skip("SKIPPED: " + noPromtool)
	}
}

// A story is a process with locks. It has the samples that Prometheus scrapes from the process, and the
// alerts that these samples must raise.
type story struct {
	*process
	server *testlock.Wire
	lock   *rlock.Mutex
	told   *told
	log    *slog.Logger

	scrapes int
	values  map[string][]string // value of each series at each scrape
	wants   []want
}

// every is the time between two scrapes.
const every = 30 * time.Second

type want struct {
	At     string           `json:"eval_time"`
	Expr   string           `json:"expr"`
	Firing []map[string]any `json:"exp_samples"`
}

// told passes events on to another observer. The story chooses the durations in the events, so that no test
// waits for minutes.
type told struct {
	rlock.Observer
	mu         sync.Mutex // guards the fields below
	wait, held time.Duration
}

func (o *told) Observe(ctx context.Context, e rlock.Event) {
	o.mu.Lock()
	e.Wait, e.Held = o.wait, o.held
	o.mu.Unlock()
	o.Observer.Observe(ctx, e)
}

func (o *told) durations(wait, held time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wait, o.held = wait, held
}

func newStory(t *testing.T, w *testlock.Wire) *story {
	s := &story{process: newProcess(t), server: w, values: map[string][]string{}}
	s.log = s.logger(slog.DiscardHandler)
	s.told = &told{Observer: s.observer, wait: 10 * time.Millisecond, held: 50 * time.Millisecond}
	session := testlock.NewSession(t, w.Client, rlock.WithObserver(s.told), rlock.WithLogger(s.log))
	s.lock = rlock.New(session, "x")
	s.scraped() // a scrape before the first Lock
	return s
}

// scraped takes a sample of each series. For Prometheus, the samples of two calls are the time every apart.
func (s *story) scraped() {
	s.t.Helper()
	for series, value := range s.scrape() {
		for len(s.values[series]) < s.scrapes {
			s.values[series] = append(s.values[series], "_") // an earlier scrape without this series
		}
		s.values[series] = append(s.values[series], value)
	}
	s.scrapes++
}

// pass adds all scrapes of the time d to the story. It calls happens before each of them.
func (s *story) pass(d time.Duration, happens func()) {
	s.t.Helper()
	for ; d > 0; d -= every {
		happens()
		s.scraped()
	}
}

func nothing() {}

// firing sets the alerts that must be raised at the last scrape. No other alert may be raised then.
func (s *story) firing(names ...string) {
	w := want{
		At: (time.Duration(s.scrapes-1) * every).String(),
		Expr: `count by (alertname, lockline_lock_kind, lockline_lock_pattern) ` +
			`(ALERTS{alertstate="firing"})`,
		Firing: []map[string]any{},
	}
	for _, name := range names {
		of := `, lockline_lock_kind="reentrant", lockline_lock_pattern="*"`
		if slices.Contains(ofLogs, name) {
			of = ""
		}
		w.Firing = append(w.Firing, map[string]any{
			"labels": fmt.Sprintf(`{alertname=%q%s}`, name, of), "value": 1,
		})
	}
	s.wants = append(s.wants, w)
}

// ofLogs has the alerts on log lines, which have no kind and no pattern.
var ofLogs = []string{"LocklineRedLockBareMajority", "LocklineRedisSilent", "LocklineSubscriptionRefused",
	"LocklineEndpointMoved"}

func (s *story) held() *rlock.Hold {
	s.t.Helper()
	_, hold, err := s.lock.Lock(s.t.Context())
	testlock.Must(s.t, err)
	return hold
}

func (s *story) unlock(hold *rlock.Hold) {
	s.t.Helper()
	testlock.Must(s.t, hold.Unlock(s.t.Context()))
}

// waiter starts a call of Lock, which waits because the lock is held. granted waits until this call has
// returned, and returns its hold.
func (s *story) waiter() (granted func() *rlock.Hold) {
	s.t.Helper()
	holds := make(chan *rlock.Hold, 1)
	go func() {
		_, hold, err := s.lock.Lock(s.t.Context())
		if err != nil {
			s.t.Error(err)
		}
		holds <- hold
	}()
	s.eventually(1, "lockline.lock.waiters")
	return func() *rlock.Hold { return <-holds }
}

// handOver takes the lock, starts a waiter, and unlocks. It unlocks again when the waiter has got the lock.
func (s *story) handOver() {
	s.t.Helper()
	hold := s.held()
	granted := s.waiter()
	s.unlock(hold)
	s.unlock(granted())
}

// lost frees the lock by force. It fails the test unless the Unlock of the holder returns ErrLost.
func (s *story) lost(hold *rlock.Hold) {
	s.t.Helper()
	_, err := s.lock.ForceUnlock(s.t.Context())
	testlock.Must(s.t, err)
	if err := hold.Unlock(s.t.Context()); !errors.Is(err, rlock.ErrLost) {
		s.t.Fatal(err)
	}
}

func (s *story) refused() {
	s.t.Helper()
	s.server.SetError("NOPERM it may not")
	if _, _, err := s.lock.TryLock(s.t.Context()); err == nil {
		s.t.Fatal("it may")
	}
	s.server.SetError("")
}

// failures makes a renewal of another session fail. It returns a function that passes the event of this
// failure to the observer of the story.
func (s *story) failures() (again func()) {
	s.t.Helper()
	failed := make(chan rlock.Event, 1)
	session := testlock.NewSession(s.t, s.server.Client, rlock.WithObserver(failing(failed)))
	_, hold, err := rlock.New(session, "y").Lock(s.t.Context())
	testlock.Must(s.t, err)
	s.server.SetError("LOADING it will be back")
	e := <-failed
	s.server.SetError("")
	_ = hold.Unlock(s.t.Context()) // returns an error if the lock was lost meanwhile
	return func() { s.observer.Observe(s.t.Context(), e) }
}

// A failing is an observer that gets the events of renewals that fail.
type failing chan rlock.Event

func (f failing) Observe(_ context.Context, e rlock.Event) {
	if e.Type == rlock.EventRenewFailed {
		select {
		case f <- e:
		default:
		}
	}
}

var stories = map[string]func(*story){
	"usual traffic raises none": func(s *story) {
		s.pass(15*time.Minute, func() {
			s.handOver()
			hold := s.held()
			if _, _, err := s.lock.TryLock(s.t.Context()); !errors.Is(err, rlock.ErrLocked) {
				s.t.Fatal(err)
			}
			_, _, err := s.lock.Lock(s.t.Context(), rlock.WaitAtMost(time.Millisecond))
			if !errors.Is(err, rlock.ErrLocked) {
				s.t.Fatal(err)
			}
			s.unlock(hold)
			s.firing()
		})
		s.firing()
	},
	"the first loss of a process raises one": func(s *story) {
		hold := s.held()
		s.scraped()
		s.firing()
		s.lost(hold)
		s.scraped()
		s.firing("LocklineLockLost")
		s.pass(4*time.Minute, nothing)
		s.firing("LocklineLockLost")
		s.pass(2*time.Minute, nothing)
		s.firing()
		s.lost(s.held())
		s.scraped()
		s.firing("LocklineLockLost")
	},
	"a renewal that fails, and goes through when it is tried again, raises none": func(s *story) {
		again := s.failures()
		s.unlock(s.held())
		s.scraped()
		again()
		s.pass(8*time.Minute, func() { s.scraped(); s.firing() })
	},
	"renewals that fail on and on raise one": func(s *story) {
		again := s.failures()
		s.unlock(s.held())
		s.scraped()
		s.pass(3*time.Minute, again)
		s.firing()
		s.pass(time.Minute, again)
		s.firing("LocklineRenewalsFail")
		s.pass(4*time.Minute, nothing)
		s.firing()
	},
	"requests that are refused for some time raise one": func(s *story) {
		s.unlock(s.held())
		s.scraped()
		s.refused()
		s.pass(8*time.Minute, func() { s.scraped(); s.firing() }) // a single refusal raises no alert
		s.pass(5*time.Minute, s.refused)
		s.firing()
		s.pass(time.Minute, s.refused)
		s.firing("LocklineRequestsFail")
		s.pass(6*time.Minute, nothing)
		s.firing()
	},
	"long waits raise one": func(s *story) {
		s.pass(2*time.Minute, s.handOver)
		s.told.durations(20*time.Second, 50*time.Millisecond)
		s.pass(10*time.Minute, s.handOver)
		s.firing()
		s.pass(time.Minute, s.handOver)
		s.firing("LocklineWaitsTooLong")
		s.told.durations(time.Millisecond, time.Millisecond)
		s.pass(6*time.Minute, s.handOver)
		s.firing()
	},
	"long holds raise one": func(s *story) {
		once := func() { s.unlock(s.held()) }
		s.pass(2*time.Minute, once)
		s.told.durations(time.Millisecond, 2*time.Minute)
		s.pass(10*time.Minute, once)
		s.firing()
		s.pass(time.Minute, once)
		s.firing("LocklineHoldsTooLong")
		s.told.durations(time.Millisecond, time.Millisecond)
		s.pass(6*time.Minute, once)
		s.firing()
	},
	"a hold that does not end raises one": func(s *story) {
		hold := s.held()
		s.pass(time.Minute, nothing)
		time.Sleep(61 * time.Minute) // in fake time, which is also the server's clock
		s.pass(4*time.Minute, nothing)
		s.firing()
		s.pass(2*time.Minute, nothing)
		s.firing("LocklineHoldStuck")
		s.unlock(hold)
		s.scraped()
		s.firing()
	},
	"a waiter that is never served raises one": func(s *story) {
		hold := s.held()
		s.scraped()
		granted := s.waiter()
		time.Sleep(16 * time.Second) // in fake time, which is also the server's clock
		s.pass(30*time.Second, nothing)
		s.firing()
		s.pass(time.Minute, nothing)
		s.firing("LocklineWaitOutlastsLease")
		s.pass(3*time.Minute+30*time.Second, nothing)
		s.firing("LocklineWaitOutlastsLease")
		s.pass(time.Minute, nothing)
		s.firing("LocklineWaitOutlastsLease", "LocklineWaitersStuck")
		s.unlock(hold)
		s.unlock(granted())
		s.scraped()
		s.firing()
	},
	"a Redis that refuses all requests raises one, of the line that the session logs": func(s *story) {
		hold := s.held()
		s.scraped()
		s.server.SetError("LOADING it will be back")
		granted := make(chan *rlock.Hold)
		go func() {
			_, other, _ := rlock.New(testlock.NewSession(s.t, s.server.Client, rlock.WithLogger(s.log)), "y").
				Lock(s.t.Context())
			granted <- other
		}()
		time.Sleep(8 * time.Second) // in fake time, which is also the server's clock
		s.server.SetError("")
		other := <-granted
		s.scraped()
		s.firing("LocklineRedisSilent")
		s.pass(6*time.Minute, nothing)
		s.firing()
		testlock.Must(s.t, other.Unlock(s.t.Context()))
		s.unlock(hold)
	},
	"other log lines raise one each": func(s *story) {
		for line, alert := range map[string]string{
			"a RedLock is held by a bare majority":                    "LocklineRedLockBareMajority",
			"subscription refused, trying again; until then":          "LocklineSubscriptionRefused",
			"subscription gets a new connection, because the old one": "LocklineEndpointMoved",
		} {
			s.log.Warn("lockline: " + line)
			s.scraped()
			s.firing(alert)
			s.pass(11*time.Minute, nothing)
			s.firing()
		}
	},
	"waiters that are served raise none": func(s *story) {
		hold := s.held()
		granted := s.waiter()
		s.pass(15*time.Minute, func() { // at each scrape, the lock has a waiter
			s.unlock(hold)
			hold = granted()
			granted = s.waiter()
			s.firing()
		})
		s.unlock(hold)
		s.unlock(granted())
	},
}

// Samples from real locks go to promtool, which shows the alerts that Prometheus would raise.
func TestAlertsAreRaisedWhenTheyShould(t *testing.T) {
	t.Parallel()
	needPromtool(t)
	path, err := filepath.Abs("alerts.yaml")
	testlock.Must(t, err)
	if out, err := exec.Command(promtool(), "check", "rules", path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var mu sync.Mutex // guards raised
	raised := map[string]bool{}
	t.Run("stories", func(t *testing.T) {
		for name, happens := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var s *story
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					s = newStory(t, w)
					happens(s)
				})
				s.check(t, path)
				mu.Lock()
				defer mu.Unlock()
				for _, w := range s.wants {
					for _, sample := range w.Firing {
						name, _, _ := strings.Cut(strings.TrimPrefix(sample["labels"].(string),
							`{alertname="`), `"`)
						raised[name] = true
					}
				}
			})
		}
	})
	for alert := range alerts(t) {
		if !raised[alert] {
			t.Errorf("no story raises %s", alert)
		}
	}
}

// check fails the test unless promtool finds the wanted alerts in the samples.
func (s *story) check(t *testing.T, rules string) {
	t.Helper()
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	var input []series
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		input = append(input, series{name, strings.Join(s.values[name], " ")})
	}
	text, err := json.MarshalIndent(map[string]any{ // JSON is YAML, too
		"rule_files":          []string{rules},
		"evaluation_interval": every.String(),
		"tests": []any{map[string]any{"interval": every.String(), "input_series": input,
			"promql_expr_test": s.wants}},
	}, "", " ")
	testlock.Must(t, err)
	path := filepath.Join(t.TempDir(), "test.yaml")
	testlock.Must(t, os.WriteFile(path, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool(), "test", "rules",
		path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAlertsOnRedisAreRaisedWhenTheyShould(t *testing.T) {
	t.Parallel()
	needPromtool(t)
	path, err := filepath.Abs("alerts-redis.yaml")
	testlock.Must(t, err)
	if out, err := exec.Command(promtool(), "check", "rules", path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	testlock.Must(t, err)
	calm := map[string]string{ // samples of an hour, one every 30 s
		"redis_rejected_connections_total": "3x120", "redis_evicted_keys_total": "0x120",
		"redis_memory_used_bytes": "50x120", "redis_memory_max_bytes": "100x120",
		"redis_master_link_up": "1x120", "redis_aof_last_write_status": "1x120",
	}
	raised := 0
	for alert, changed := range map[string]map[string]string{
		"":                         {},
		"LocklineClientsRefused":   {"redis_rejected_connections_total": "3x110 4x10"},
		"LocklineKeysEvicted":      {"redis_evicted_keys_total": "0x110 7x10"},
		"LocklineMemoryNearlyFull": {"redis_memory_used_bytes": "50x100 91x20"},
		"LocklineReplicaCutOff":    {"redis_master_link_up": "1x110 0x10"},
		"LocklineDiskFails":        {"redis_aof_last_write_status": "1x110 0x10"},
	} {
		s := &story{values: map[string][]string{}, scrapes: 121}
		for name, values := range calm {
			if v := changed[name]; v != "" {
				values = v
			}
			s.values[name+`{instance="a"}`] = []string{values}
		}
		unlimited := `{instance="no maxmemory"}`
		s.values["redis_memory_used_bytes"+unlimited] = []string{"50x120"}
		s.values["redis_memory_max_bytes"+unlimited] = []string{"0x120"}
		w := want{At: "60m", Expr: `count by (alertname, instance) (ALERTS{alertstate="firing"})`,
			Firing: []map[string]any{}}
		if alert != "" {
			raised++
			w.Firing = append(w.Firing, map[string]any{"value": 1,
				"labels": fmt.Sprintf(`{alertname=%q, instance="a"}`, alert)})
		}
		s.wants = []want{w}
		s.check(t, path)
	}
	if n := strings.Count(string(text), "alert:"); n != raised {
		t.Errorf("%d alerts of %d are raised", raised, n)
	}
}
