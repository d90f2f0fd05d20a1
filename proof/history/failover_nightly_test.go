//go:build nightly

package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// failoverLease is longer than a failover takes, even if the Sentinels notice the failure late.
const failoverLease = 20 * time.Second

// shares describes a lock that several callers can hold at the same time. It is a read-write lock, or a
// semaphore of three permits.
type shares struct {
	name  string
	turn  time.Duration // WithHandover of every other session
	lock  func(s *rlock.Session, name string, all bool) rlock.Locker
	hold  func() (all bool, h history.Hold) // picks a random kind of hold
	judge func(holds []history.Hold) history.Verdict
	queue string // key of the queue of the lock "kept"
}

var bothShares = []shares{
	{
		name: "rwlock", turn: 5 * time.Millisecond, queue: "lockline:w:{kept}:q",
		lock: func(s *rlock.Session, name string, all bool) rlock.Locker {
			if all {
				return rwlock.New(s, name)
			}
			return rwlock.New(s, name).RLocker()
		},
		hold: func() (bool, history.Hold) {
			read := rand.IntN(3) > 0
			return !read, history.Hold{Read: read}
		},
		judge: history.JudgeReadWrite,
	},
	{
		// No session passes a permit on in memory, so each hold is a grant of its own, with its own token. A
		// grant may be older than the call that receives it, because the session gives the grant of a
		// canceled waiter to its next waiter.
		name: "semaphore", queue: "lockline:p:{kept}:q",
		lock: func(s *rlock.Session, name string, all bool) rlock.Locker {
			n := 1
			if all {
				n = 3
			}
			return semaphore.New(s, name, 3).Locker(n)
		},
		hold: func() (bool, history.Hold) {
			if rand.IntN(4) == 0 {
				return true, history.Hold{Permits: 3}
			}
			return false, history.Hold{Permits: 1}
		},
		judge: func(holds []history.Hold) history.Verdict {
			v := history.JudgeSemaphore(holds, 3)
			seen := map[string]bool{}
			for _, h := range holds {
				token := fmt.Sprint(h.Lock, h.Token)
				if seen[token] {
					v.Unfenced++
				}
				seen[token] = true
			}
			return v
		},
	},
}

// A shareLoad runs goroutines of several sessions, which use locks of two names. It records their holds and
// errors.
type shareLoad struct {
	shares
	t        *testing.T
	sessions int
	stop     chan struct{}
	workers  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	holds  []history.Hold
	errors []failed
}

// failed is an error of Lock or Unlock.
type failed struct {
	call int64 // time of the call of Lock
	what string
}

func (k shares) startLoad(t *testing.T, sessions []*rlock.Session) *shareLoad {
	w := &shareLoad{shares: k, t: t, sessions: len(sessions), stop: make(chan struct{})}
	for i, s := range sessions {
		for g := range 4 {
			w.workers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-w.stop:
						return
					default:
						w.cycle(s, fmt.Sprint(i, ".", g, ".", n))
					}
				}
			})
		}
	}
	t.Cleanup(w.end)
	return w
}

func (w *shareLoad) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.workers.Wait()
}

// cycle acquires one of the locks, holds it and releases it. About one hold of a thousand lasts a second, so
// that some holds last through the failover.
func (w *shareLoad) cycle(s *rlock.Session, owner string) {
	all, h := w.hold()
	h.Lock, h.Owner, h.Call = []string{"a", "b"}[rand.IntN(2)], owner, time.Now().UnixNano()
	ctx, cancel := context.WithTimeout(context.Background(), testlock.Patience)
	defer cancel()
	held, hold, err := w.lock(s, h.Lock, all).Lock(ctx)
	if err != nil {
		w.saw("Lock", h, err)
		<-time.After(5 * time.Millisecond)
		return
	}
	h.Return, h.Token = time.Now().UnixNano(), hold.Token()
	stay := rand.N(2 * time.Millisecond)
	if rand.IntN(1000) == 0 {
		stay = time.Second
	}
	select {
	case <-time.After(stay):
	case <-held.Done():
	case <-w.stop:
	}
	end := time.Now()
	if h.Lost = hold.Err() != nil; h.Lost && hold.Deadline().Before(end) {
		end = hold.Deadline()
	}
	h.End = end.UnixNano()
	w.mu.Lock()
	w.holds = append(w.holds, h)
	w.mu.Unlock()
	if err := hold.Unlock(context.Background()); err != nil {
		w.saw("Unlock", h, err)
	}
}

func (w *shareLoad) saw(of string, h history.Hold, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors = append(w.errors, failed{h.Call, fmt.Sprintf("%s: %v", of, err)})
}

// progress waits until each session has held each lock in full, and in part, as many more times as times
// says. It waits for each session, because some sessions reach the new master later than others: after a
// failover, the Sentinel that they use may name the old master for a while.
func (w *shareLoad) progress(times int) {
	w.t.Helper()
	w.mu.Lock()
	from := len(w.holds)
	w.mu.Unlock()
	testlock.Eventually(w.t, "each is had again and again by each session", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		type what struct {
			session, lock string
			part          bool
		}
		n := map[what]int{}
		for _, h := range w.holds[from:] {
			session, _, _ := strings.Cut(h.Owner, ".")
			n[what{session, h.Lock, h.Read || h.Permits == 1}]++
		}
		had := 0
		for _, of := range n {
			if of >= times {
				had++
			}
		}
		return had == w.sessions*4
	})
}

// An entry identifies a grant that the readers of a session share. A reader may join a grant after a
// failover, although the old master made this grant.
type entry struct {
	session, lock string
	token         int64
}

func entryOf(h history.Hold) entry {
	session, _, _ := strings.Cut(h.Owner, ".")
	return entry{session, h.Lock, h.Token}
}

// report fails the test unless the grants of each master exclude each other, and have tokens in order. The
// tokens of the new master must be above the tokens of the old master. If there were two masters at the same
// time, the last grants of the old master may overlap grants of the new master, for a lease at most. These
// grants may also have the same tokens. If there never were two masters, all tokens must be in order.
func (w *shareLoad) report(until, from time.Time) {
	w.t.Helper()
	w.end()
	all := w.judge(w.holds)
	if all.Strange > 0 || all.Unfenced > 0 && until.Equal(from) {
		w.t.Errorf("%d tokens out of order, %d impossible holds", all.Unfenced, all.Strange)
	}
	var old, now []history.Hold
	last := map[string]int64{}  // tokens before the failover
	opened := map[entry]int64{} // earliest call of Lock for each entry
	lost := 0
	for _, h := range w.holds {
		if first, ok := opened[entryOf(h)]; !ok || h.Call < first {
			opened[entryOf(h)] = h.Call
		}
		if h.Lost {
			lost++
		}
		if h.Return < until.UnixNano() {
			old = append(old, h)
			last[h.Lock] = max(last[h.Lock], h.Token)
		}
	}
	for _, h := range w.holds {
		if opened[entryOf(h)] > from.UnixNano() && h.Token <= last[h.Lock] {
			w.t.Errorf("%s: token %d after the failover, and %d before it", h.Lock, h.Token, last[h.Lock])
		}
		if h.Call > from.UnixNano() && h.Token > from.UnixMicro() ||
			h.End > from.Add(failoverLease).UnixNano() {
			now = append(now, h)
		}
	}
	for when, holds := range map[string][]history.Hold{"before the failover": old, "after it": now} {
		if v := w.judge(holds); v.Overlaps > 0 || v.Unfenced > 0 {
			w.t.Errorf("%s, %d tokens are out of order, and %d holds overlap: %s",
				when, v.Unfenced, v.Overlaps, v.Example)
		}
	}
	what := map[string]int{}
	for _, e := range w.errors {
		what[e.what]++
	}
	w.t.Logf("%d holds, %d before the failover, %d after it, %d lost; in all, "+
		"%d overlaps and %d tokens out of order; errors: %v",
		len(w.holds), len(old), len(now), lost, all.Overlaps, all.Unfenced, what)
}

// failovers has functions that make the other node the master. Before the time until, the old master is the
// only master. After the time from, the new master is the only master.
var failovers = map[string]func(
	t *testing.T, s *testredis.Sentinel, old *testredis.Server,
) (until, from time.Time){
	"the master dies": func(
		t *testing.T, s *testredis.Sentinel, old *testredis.Server,
	) (until, from time.Time) {
		old.Kill()
		killed := time.Now()
		s.AwaitFailover(t, old)
		return killed, killed
	},
	"the master comes back": func(
		t *testing.T, s *testredis.Sentinel, old *testredis.Server,
	) (until, from time.Time) {
		until = time.Now()
		old.Freeze()
		s.AwaitFailover(t, old)
		old.Thaw() // the old node is a master until a Sentinel reconfigures it
		testlock.Eventually(t, "it is a replica", func() bool {
			role, err := old.Client(t).Do(t.Context(), "ROLE").Slice()
			testlock.Must(t, err)
			return role[0] == "slave"
		})
		return until, time.Now()
	},
}

// Proves: semaphore, read-write lock
func TestASentinelFailoverUnderLoadKeepsTheOrderOfTokensAndOfWaiters(t *testing.T) {
	for _, k := range bothShares {
		for how, failover := range failovers {
			t.Run(k.name+", "+how, func(t *testing.T) {
				t.Parallel()
				sentinel := testredis.StartSentinel(t, 1)
				var rdb *redis.Client
				var sessions []*rlock.Session
				for i := range 3 {
					rdb = sentinel.FailoverClient(t, func(o *redis.FailoverOptions) {
						o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
					})
					sessions = append(sessions, testlock.Batching(testlock.NewSession(t, rdb,
						rlock.WithWatchdogTimeout(failoverLease), rlock.WithWaiterTimeout(failoverLease),
						rlock.WithHandover(k.turn*time.Duration(i%2))), 10*(i%2)))
				}

				// The replica has received the holder and the order of the waiters. This state must survive
				// the failover.
				kept := func(i int, all bool) rlock.Locker { return k.lock(sessions[i], "kept", all) }
				hold := testlock.Take(t, kept(0, true))
				replica := sentinel.Nodes[1].Client(t)
				queued := func(n int64) {
					testlock.Eventually(t, "the replica knows that they wait", func() bool {
						return replica.ZCard(t.Context(), k.queue).Val() == n
					})
				}
				some := testlock.Go(t.Context(), kept(1, false))
				queued(1)
				all := testlock.Go(t.Context(), kept(2, true))
				queued(2)

				waits := func(what string, done <-chan testlock.Grant) {
					select {
					case g := <-done:
						t.Errorf("%s: it did not wait: %v", what, g.Err)
					default:
					}
				}

				w := k.startLoad(t, sessions)
				w.progress(5)
				until, from := failover(t, sentinel, sentinel.Master(t))
				w.progress(5)
				settled := time.Now().UnixNano()
				w.progress(20)

				testlock.Renewed(t, hold, time.Second)
				waits("a part of what is held", some)
				testlock.Unlock(t, hold)
				first := testlock.Granted(t, some)
				waits("all of what is held in part", all)
				testlock.Unlock(t, first)
				second := testlock.Granted(t, all)
				if tokens := []int64{hold.Token(), first.Token(), second.Token()}; tokens[0] >= tokens[1] ||
					tokens[1] >= tokens[2] {
					t.Errorf("tokens: %d", tokens)
				}
				testlock.Unlock(t, second)

				w.report(until, from)
				for _, e := range w.errors {
					if e.call > settled {
						t.Error("after the failover: ", e.what)
					}
				}
				testlock.OnlyTokens(t, rdb)
			})
		}
	}
}
