package multilock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// voter is one server, asked by hand.
type voter struct {
	t                     testing.TB
	rdb                   *redis.Client
	key, memory           string
	lock, accept, release *redis.Script
}

func newVoter(t testing.TB, rdb *redis.Client) *voter {
	key := testlock.Prefix(rdb) + ":q:{x}"
	return &voter{t, rdb, key, key + ":t", redScript("lock"), redScript("accept"), redScript("release")}
}

func (v *voter) run(s *redis.Script, argv ...any) string {
	v.t.Helper()
	reply, err := s.Run(bg, v.rdb, []string{v.key, v.memory}, argv...).Text()
	testlock.Must(v.t, err)
	return reply
}

// ask is answered by what follows the time. It does not wait where it is refused.
func (v *voter) ask(owner string, token int) string {
	v.t.Helper()
	return v.askTo("0", owner, token)
}

// askTo is ask by a vote for such a purpose: "w" where it waits, "1" to join.
func (v *voter) askTo(purpose, owner string, token int) string {
	v.t.Helper()
	words := strings.SplitN(v.run(v.lock, owner, 60000, time.Now().Add(time.Minute).UnixMicro(), "1@h", 60000, token, token+9, v.key, purpose, "nonce-of-"+owner), " ", 3)
	return strings.Join(append(words[:1], words[2:]...), " ")
}

func (v *voter) raise(owner string, token int) string { return v.run(v.accept, owner, token, 10) }
func (v *voter) free(owner string, token int, late int64, used any) string {
	return v.run(v.release, owner, token, v.key, 60000, late, used)
}
func (v *voter) stored() string { return v.rdb.HGet(bg, v.memory, "t").Val() }

func (v *voter) is(what, got, want string) {
	v.t.Helper()
	if got != want {
		v.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestAServerAcceptsATokenOnlyFromWhoHoldsAndAboveWhatIsStored(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testlock.Shared(t))
	v.is("a first vote", v.ask("a:1", 100), "G 109 +")
	v.is("its copy", v.ask("a:1", 100), "G 109 +")
	v.is("another", strings.Join(strings.Fields(v.ask("b:1", 200))[2:4], " "), "a:1 100")
	v.is("accept from another", v.raise("b:1", 300), "L")
	v.is("release", v.free("a:1", 100, 0, 103), "R 0")
	v.is("stored", v.stored(), "103")
	v.is("its copy", v.free("a:1", 100, 0, 103), "R")
	v.is("accept from one that does not hold", v.raise("a:1", 400), "L")
	v.is("refused", v.ask("b:2", 103), "G 103 -")
	v.is("its copy", v.ask("b:2", 103), "G 103 -")
	v.is("not above what is stored", v.raise("b:2", 103), "L")
	v.is("nor half of it", v.stored(), "103")
	v.is("the second round", v.raise("b:2", 104), "A")
	v.is("its copy", v.raise("b:2", 104), "A")
	v.is("stored", v.stored(), "113")
	v.is("over its own block", v.raise("b:2", 110), "A")
	v.is("stored", v.stored(), "119")
	v.is("a late copy of the lower one", v.raise("b:2", 104), "A")
	v.is("stored", v.stored(), "119")
	v.is("release without knowing what was used", v.free("b:2", 103, 0, ""), "R 0")
	v.is("stored", v.stored(), "119")
	v.is("refused", v.ask("c:1", 50), "G 119 -")
	v.is("release of what was not accepted", v.free("c:1", 50, 0, ""), "R 0")
	v.is("stored", v.stored(), "119")
}

// Two that vote may have proposed one token. What the other one was granted must be neither renewed nor counted.
func TestARenewalRenewsOnlyWhatItsOwnerWasGranted(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testlock.Shared(t))
	keep := redScript("keep")
	renew := func(owner string) string {
		return v.run(keep, owner, 100, 1, 1, 600000, 60000, v.key, "100", "")
	}
	v.is("a vote", v.ask("a:1", 100), "G 109 +")
	v.is("the same token of another", renew("b:1"), "L")
	if left := v.rdb.PTTL(bg, v.key).Val(); left > time.Minute {
		t.Errorf("it was renewed to %v", left)
	}
	if fields := v.rdb.HExists(bg, v.key, "b:1").Val(); fields {
		t.Error("there is a second owner")
	}
	v.is("its own", renew("a:1"), "K")
}

func TestAnAttemptThatIsOverIsNotGrantedByALateCopy(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testlock.Shared(t))
	v.is("released before it came", v.free("a:1", 100, time.Now().Add(time.Minute).UnixMicro(), ""), "L")
	v.is("then it comes", v.ask("a:1", 100), "S")
	v.is("granted", v.ask("a:2", 200), "G 209 +")
	v.is("released", v.free("a:2", 200, 0, 200), "R 0")
	v.is("and a copy comes", v.ask("a:2", 200), "S")
	v.is("granted", v.ask("a:3", 300), "G 309 +")
	v.is("forced", v.run(redScript("force"), v.key, 60000), "R")
	v.is("others come", v.ask("b:1", 400), "G 409 +")
	v.is("forced, if it were the one before", v.run(redScript("force"), v.key, 60000, "a:3"), "O")
	v.is("and go", v.free("b:1", 400, 0, 400), "R 0")
	v.is("and a copy comes", v.ask("a:3", 300), "S")
}

func TestAServerTellsOfAReleaseThatOneWaitsFor(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testlock.Shared(t))
	heard := v.rdb.Subscribe(bg, v.key)
	defer func() { _ = heard.Close() }()
	_, err := heard.Receive(bg)
	testlock.Must(t, err)
	tells := func(what string, messages ...string) { // these and no others since the last call
		t.Helper()
		testlock.Must(t, v.rdb.Publish(bg, v.key, "that is all").Err())
		for _, want := range append(messages, "that is all") {
			m, err := heard.ReceiveMessage(testlock.Bounded(t))
			testlock.Must(t, err)
			v.is(what, m.Payload, want)
		}
	}
	waits := func(owner string, token int) { v.is("one that waits", v.askTo("w", owner, token)[:1], "H") }

	v.is("granted", v.askTo("w", "a:1", 100), "G 109 +")
	v.is("one that does not wait", v.ask("b:1", 200)[:1], "H")
	v.is("one that wants to join", v.askTo("1", "c:1", 200)[:1], "H")
	v.is("released", v.free("a:1", 100, 0, 100), "R 0")
	tells("nobody waits")

	v.is("granted", v.ask("a:2", 200), "G 209 +")
	waits("b:2", 300)
	v.is("another that waits", strings.Join(strings.Fields(v.askTo("w", "c:2", 300))[2:], " "), "a:2 200 nonce-of-b:2 1@h")
	v.is("one that does not wait", strings.Join(strings.Fields(v.ask("d:2", 300))[2:], " "), "a:2 200 - 1@h")
	v.is("released", v.free("a:2", 200, 0, 203), "R 1")
	v.is("its copy", v.free("a:2", 200, 0, 200), "R")
	tells("two wait", "200 203 nonce-of-b:2")
	v.is("granted", v.ask("b:3", 300), "G 309 +")
	v.is("released", v.free("b:3", 300, 0, 300), "R 0")
	tells("nobody waits for the next")

	v.is("granted", v.ask("a:4", 400), "G 409 +")
	waits("b:4", 500)
	v.is("the session's next attempt", v.ask("a:5", 500), "G 509 +")
	tells("its former one is over", "400")
	v.is("and its next", v.ask("a:6", 600), "G 609 +")
	v.is("released", v.free("a:6", 600, 0, 600), "R 0")
	tells("nobody was refused by that")

	v.is("joined", v.askTo("1", "a:7", 700), "G 709 +")
	v.is("one that waits", strings.Fields(v.askTo("w", "b:7", 800))[4], "nonce-of-a:7")
	v.is("released", v.free("a:7", 700, 0, 700), "R 1")
	tells("who waits was forgotten here", "700 700 nonce-of-a:7")

	v.is("its data are gone", v.free("a:8", 800, 0, 800), "L")
	tells("all may be gone", "800")
}

// It cannot note that somebody waits, so that one has to look by itself.
func TestAServerThatCannotNoteWhoWaitsSaysThatItIsFreeSoon(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testredis.Start(t).Client(t))
	left := func(owner string) int {
		t.Helper()
		left, err := strconv.Atoi(strings.Fields(v.askTo("w", owner, 200))[1])
		testlock.Must(t, err)
		return left
	}
	for i, why := range []string{"maxmemory", "min-replicas-to-write"} {
		set := func(value string) { testlock.Must(t, v.rdb.ConfigSet(bg, why, value).Err()) }
		owner, token := fmt.Sprint("a:", i), 100*(i+1)
		v.is("granted", v.ask(owner, token)[:1], "G")
		set("1")
		if ms := left("b:1"); ms > 1000 {
			t.Errorf("%s: %d ms", why, ms)
		}
		set("0")
		if ms := left("b:2"); ms <= 1000 {
			t.Errorf("no longer %s: %d ms", why, ms)
		}
		set("1")
		if ms := left("c:1"); ms <= 1000 {
			t.Errorf("%s, and it has been noted: %d ms", why, ms)
		}
		set("0")
		v.is("released", v.free(owner, token, 0, token), "R 0")
	}
}

func TestASessionsNextAttemptTakesTheLockFromTheOneBefore(t *testing.T) {
	t.Parallel()
	v := newVoter(t, testlock.Shared(t))
	v.is("granted", v.ask("s:9", 100), "G 109 +")
	v.is("an earlier one", v.ask("s:8", 300)[:1], "H")
	v.is("another session's", v.ask("t:10", 300)[:1], "H")
	v.is("the next", v.ask("s:10", 105), "G 114 +")
	v.is("the release of the one before", v.free("s:9", 100, 0, 104), "L")
	v.is("the next one's", v.free("s:10", 105, 0, 105), "R 0")
	v.is("stored", v.stored(), "105")
}

// redServers starts real servers, and returns what makes sessions of a process on all of them.
func redServers(t *testing.T, n int) (all []*testredis.Server, process func(...rlock.SessionOption) []*rlock.Session) {
	for range n {
		all = append(all, testredis.Start(t))
	}
	return all, func(options ...rlock.SessionOption) (ss []*rlock.Session) {
		for _, s := range all {
			ss = append(ss, testlock.NewSession(t, s.Client(t), options...))
		}
		return ss
	}
}

func TestARedLockGoesOnWithoutTwoOfFiveProcesses(t *testing.T) {
	t.Parallel()
	all, process := redServers(t, 5)
	m, other := multilock.NewRedLock("x", process()...), multilock.NewRedLock("x", process()...)
	_, hold := testlock.Lock(t, m, bg)
	got := testlock.Go(testlock.Bounded(t), other)
	all[0].Kill()
	all[1].Freeze()
	testlock.Must(t, hold.Extend(bg, time.Minute))
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, got)
	testlock.WantAfter(t, next, hold.Token())
	all[0].Restart(t)
	all[1].Thaw()
	_, _, err := m.TryLock(bg)
	testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
	testlock.Unlock(t, next)
	testlock.Works(t, m)
}

// Rights to a RedLock's own keys were enough once. Without the turnstile's, those who wait vote as they can.
func TestWithoutRightsToTheTurnstileARedLockWorks(t *testing.T) {
	t.Parallel()
	all, _ := redServers(t, 3)
	redLock := func() *rlock.Mutex {
		var ss []*rlock.Session
		for _, s := range all {
			ss = append(ss, testlock.NewSession(t, testlock.User(t, s, "user", "~lockline:q:*", "&lockline:*", "+@all")))
		}
		return multilock.NewRedLock("x", ss...)
	}
	_, hold := testlock.Lock(t, redLock(), bg)
	locked := make(chan error)
	for range 2 {
		m := redLock()
		go func() { locked <- testlock.Cycle(testlock.Bounded(t), m) }()
	}
	testlock.Eventually(t, "they listen", func() bool { return all[0].Client(t).PubSubNumSub(bg, redKey).Val()[redKey] == 2 })
	testlock.Unlock(t, hold)
	for range 2 {
		testlock.Must(t, <-locked)
	}
	for i, s := range all {
		if n := s.Client(t).Exists(bg, turnKey).Val(); n > 0 {
			t.Errorf("server %d has a turnstile", i)
		}
	}
}
