package keyspace_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/proof/keyspace"
)

// The tests in this file run single scripts of locks on a key space, in situations that no session can bring
// about at will.

// These are arguments of the requests, in ms.
const (
	lockLease = 1100
	liveness  = 1800  // waiter timeout
	retention = 15000 // time for which metadata outlives the lease
)

const (
	epoch         = int64(1e12) // Redis time in µs at which a test begins
	channelPrefix = "c:"
	all           = protocol.All
)

var (
	lockKeys   = []string{"lock", "lock:q", "lock:w"}
	permitKeys = []string{"lock", "lock:q", "lock:w", "lock:h"} // keys of a lock with permits
)

func micro(ms int64) int64 { return ms * 1000 }

// patience returns how long a request is valid, in µs.
func patience() int64 {
	return protocol.Patience(min(lockLease, liveness) * time.Millisecond).Microseconds()
}

func nonce(owner string) string { return "n" + strings.ReplaceAll(owner, ":", "") }

func number(n int64) string { return strconv.FormatInt(n, 10) }

// integer returns 0 for a text that is no number.
func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// A server runs scripts of one lock, one after another.
type server struct {
	t     *testing.T
	now   int64
	keys  []string
	limit string // number of permits in the requests; "" for a lock without permits
	space *keyspace.Space
	deaf  string   // sessions without a subscription, one letter each
	told  []string // CHANNEL TEXT of each message
	reads []string // attempts whose entries the last script has read, in order
}

func newServer(t *testing.T, limit string) *server {
	keys := permitKeys
	if limit == "" {
		keys = lockKeys
	}
	return &server{t: t, now: epoch, keys: keys, limit: limit, space: keyspace.New()}
}

// try runs a script, and returns its reply and its error.
func (s *server) try(name string, keys []string, argv ...string) (string, error) {
	s.t.Helper()
	compiled, err := keyspace.Compile(name, script.Text(name))
	if err != nil {
		s.t.Fatal(err)
	}
	env := keyspace.Env{Now: s.now, Listening: func(channel string) int {
		session := strings.TrimPrefix(channel, channelPrefix)
		if s.deaf != "" && strings.Contains(s.deaf, session) {
			return 0
		}
		return 1
	}}
	s.reads = nil
	env.OnCall = func(command string, args []string) {
		if command == "HMGET" && args[0] == permitKeys[2] {
			s.reads = append(s.reads, args[1:]...)
		}
	}
	did := compiled.Run(s.space, env, keys, argv)
	s.space, s.told = did.Space, nil
	for _, m := range did.Published {
		s.told = append(s.told, strings.TrimPrefix(m.Channel, channelPrefix)+" "+m.Text)
	}
	return did.Reply, did.Err
}

func (s *server) run(name string, argv ...string) string {
	s.t.Helper()
	reply, err := s.try(name, s.keys, argv...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return reply
}

func (s *server) request(owner, n, alive string, more ...string) string {
	s.t.Helper()
	argv := append([]string{owner, n, number(s.now + patience()), number(lockLease), "me", number(retention),
		alive, channelPrefix, nonce(owner), "1"}, more...)
	if len(more) == 0 {
		argv = append(argv, "")
	}
	if s.limit != "" {
		argv = append(argv, s.limit, "")
	}
	return s.run("lock/acquire", argv...)
}

func (s *server) acquire(owner, n string) string {
	s.t.Helper()
	return s.request(owner, n, number(liveness))
}

func (s *server) tryAcquire(owner, n string) string {
	s.t.Helper()
	return s.request(owner, n, "0")
}

// granted returns the token of a grant. It fails the test if the reply is not a grant.
func (s *server) granted(reply string) string {
	s.t.Helper()
	words := strings.Fields(reply)
	if len(words) < 3 || reply[0] != 'G' {
		s.t.Fatalf("the reply is %q, and is to be a grant", reply)
	}
	return words[2]
}

func (s *server) release(owner, token string, more ...string) string {
	s.t.Helper()
	argv := []string{owner, token, channelPrefix, number(retention), "0", "0"}
	return s.run("lock/release", append(argv, more...)...)
}

func (s *server) renew(owner, token string) string {
	s.t.Helper()
	return s.run("lock/renew", owner, token, "0", "1", number(lockLease), number(retention), "0")
}

func (s *server) setLimit(n string) string {
	s.t.Helper()
	return s.run("lock/limit", n, "0", channelPrefix, number(retention), "i"+n, number(s.now+patience()))
}

func (s *server) force(which string) string {
	s.t.Helper()
	return s.run("lock/force", channelPrefix, number(retention), which)
}

func (s *server) wants(reply, begins string) {
	s.t.Helper()
	if !strings.HasPrefix(reply, begins) {
		s.t.Errorf("the reply is %q, and is to begin with %q", reply, begins)
	}
}

func (s *server) wantsTold(session string) {
	s.t.Helper()
	for _, m := range s.told {
		if strings.HasPrefix(m, session+" ") {
			return
		}
	}
	s.t.Errorf("%s was told nothing; messages: %q", session, s.told)
}

// edit changes the fields of the lock's hash.
func (s *server) edit(change func(fields map[string]string)) {
	hash := maps.Clone(s.space.Hash(permitKeys[0]))
	change(hash)
	expires := s.space.Expires(permitKeys[0])
	s.space = s.space.Clone()
	s.space.PutHash(permitKeys[0], hash, expires)
}

// blocked returns a semaphore with a limit of 2. A:1 holds 2 permits, with the token that blocked returns.
// The queue has W:1, which wants 3 permits, behind a waiter that has died.
func blocked(t *testing.T) (s *server, token string) {
	s = newServer(t, "3")
	token = s.granted(s.acquire("A:1", "2"))
	s.wants(s.acquire("H:1", "2"), "Q")
	s.wants(s.acquire("W:1", "3"), "Q")
	s.setLimit("2")
	s.now += micro(liveness) / 2
	s.renew("A:1", token)
	// The waiter W must live longer than H, which is before W. The test changes the entry of W, because the
	// reply to a heartbeat of W would be N, which means that W wants more permits than the limit.
	entry := s.space.Hash(permitKeys[2])
	waiters := maps.Clone(entry)
	words := strings.SplitN(waiters["W:1"], " ", 2)
	waiters["W:1"] = number(s.now+2*micro(liveness)) + " " + words[1]
	expires := s.space.Expires(permitKeys[2])
	s.space = s.space.Clone()
	s.space.PutHash(permitKeys[2], waiters, expires)
	s.now += micro(liveness)/2 + 1
	s.renew("A:1", token)
	return s, token
}

func TestATryTakesPermitsThatNobodyHoldsThoughTheOnlyWaiterWantsMoreThanThereAre(t *testing.T) {
	t.Parallel()
	s, _ := blocked(t)
	s.now += micro(lockLease) // the lease of A has ended
	s.wants(s.tryAcquire("T:1", "1"), "G")
}

func TestAReleaseIsNotedThoughTheOnlyWaiterWantsMoreThanThereAre(t *testing.T) {
	t.Parallel()
	s, token := blocked(t)
	s.wants(s.release("A:1", token), "R")
	s.wants(s.release("A:1", token), "R") // a copy
	if hash := s.space.Hash(permitKeys[0]); hash["releaser"] != "A:1" || hash["released"] != token {
		t.Errorf("the hash does not say that A:1 has released: %v", hash)
	}
}

func TestAWaiterOfTheSessionWhosePermitsStayTakenIsToldWhenThatEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, "2")
	first := s.granted(s.acquire("Z:1", "1"))
	s.now += micro(lockLease) / 2
	token := s.granted(s.acquire("A:1", "1"))
	s.now += 1000
	s.renew("Z:1", first) // the lease of A ends before that of Z
	s.wants(s.acquire("A:2", "1"), "Q")
	s.wants(s.release("A:1", token, "50"), "R")
	s.wantsTold("A")
}

func TestATryThatRemovesADeadHeadTellsTheNextWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, alive string }{{"a try", "0"}, {"a waiter", number(liveness)}} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, "2")
			token := s.granted(s.acquire("A:1", "1"))
			s.wants(s.acquire("D:1", "2"), "Q ")
			s.wants(s.acquire("E:1", "2"), "QS ")
			s.now += micro(1000)
			s.renew("A:1", token)
			s.now += micro(200)
			s.wants(s.acquire("W:1", "2"), "QB ") // D and E send requests when the lease ends, W in 1,080 ms
			// Now D and E count as dead, and the lease of A lasts for another 299 ms.
			s.now += micro(liveness-1200) + 1
			s.wants(s.request("T:1", "1", c.alive), "Q")
			s.wantsTold("W")
		})
	}
}

func TestPermitsAreNotLostByAnAttemptThatIsGrantedAgainBehindManyLeasesThatAreOver(t *testing.T) {
	t.Parallel()
	s := newServer(t, "3000")
	s.granted(s.acquire("Z:1", "1")) // the hash has Z:1 in the field `owner`
	for i := range 1000 {
		s.granted(s.acquire(fmt.Sprintf("A:%d", i), "1"))
		s.now++
	}
	s.granted(s.acquire("B:1", "1"))
	s.now += micro(lockLease) / 2
	s.renew("Z:1", s.space.Hash(permitKeys[0])["token"])
	s.now += micro(lockLease)/2 + 1
	s.granted(s.acquire("B:1", "1"))
	s.granted(s.acquire("C:1", "1"))
	if shared := s.space.Hash(permitKeys[0])["shared"]; shared != "2" {
		t.Errorf("%s permits count as in use by further holders, and 2 are", shared)
	}
}

func TestALimitThatIsSetWhileASlotMovesFailsSoThatItIsTriedAgain(t *testing.T) {
	t.Parallel()
	set := func(s *server) {
		s.t.Helper()
		_, err := s.try("lock/limit", permitKeys[:1], "5", "0", channelPrefix, number(retention), "i",
			number(s.now+patience()))
		if err != nil && !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			s.t.Errorf("the error is %q, and is to be TRYAGAIN", err)
		}
	}
	s := newServer(t, "2")
	set(s) // the lock has no hash yet
	s = newServer(t, "2")
	s.acquire("A:1", "1")
	set(s)
	s.acquire("B:1", "1")
	set(s) // there is a second holder
	s = newServer(t, "2")
	s.acquire("A:1", "2")
	s.acquire("B:1", "1")
	set(s) // there is a queue
}

func TestTokensGrowBehindAForcedHolderWhosePermitsStayedTakenWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := newServer(t, "2")
	token := s.granted(s.acquire("A:1", "1"))
	s.wants(s.release("A:1", token, "1000"), "R") // the permit stays taken
	s.now += micro(500)
	s.granted(s.acquire("B:1", "1"))
	last := s.granted(s.acquire("B:1", "1"))
	s.wants(s.release("B:1", last), "R")
	s.wants(s.force(token), "1")
	s.now -= micro(200)
	if next := s.granted(s.acquire("C:1", "1")); next <= last {
		t.Errorf("token %s follows token %s", next, last)
	}
}

func TestAReleaseBehindTheEndOfTheLeaseOfASharedLockSaysThatItIsLost(t *testing.T) {
	t.Parallel()
	s := newServer(t, "3")
	first := s.granted(s.acquire("A:1", "1"))
	s.now++
	shared := s.granted(s.acquire("B:1", "1"))
	s.now++
	s.wants(s.release("A:1", first), "R")
	s.now += micro(lockLease)
	s.wants(s.release("B:1", shared), "L")
}

func TestAForcedUnlockOfADamagedLockThatIsShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, which string
		free        bool // the first holder has released the lock
		damage      func(map[string]string)
	}{
		{"a field of the hash", "r", false, func(h map[string]string) { h["ticket"] = "x" }},
		{"without a first holder", "r", true, func(h map[string]string) { h["ticket"] = "x" }},
		{"the number of shared permits", "r", true, func(h map[string]string) { h["shared"] = "x" }},
		{"a further holder", "r", false, func(h map[string]string) { h["held B:1"] = "x" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, "1000000000")
			first := s.granted(s.acquire("A:1", "1"))
			s.granted(s.acquire("B:1", "1"))
			if c.free {
				s.release("A:1", first)
			}
			s.edit(c.damage)
			reply, err := s.try("lock/force", permitKeys, channelPrefix, number(retention), c.which)
			if err != nil || reply == "0" {
				t.Errorf("forced: %q, %v", reply, err)
			}
			s.now += 1000
			reply, err = s.try("lock/acquire", permitKeys, "C:1", "1000000000", number(s.now+patience()),
				"1100", "me", "15000", "0", channelPrefix, "n", "1", "", "1000000000", "")
			if err != nil || reply[0] != 'G' {
				t.Errorf("then a writer gets %q, %v", reply, err)
			}
		})
	}
}

func TestAForcedUnlockByATokenMeansOneHolderThoughThePermitsOfAnotherStayTaken(t *testing.T) {
	t.Parallel()
	s := newServer(t, "2")
	first := s.granted(s.acquire("A:1", "1"))
	second := s.granted(s.acquire("B:1", "1"))
	s.wants(s.release("A:1", first, "1000"), "R")
	s.wants(s.force(second), "1")
	s.wants(s.force(first), "1")
}

func TestAWriterThatGoesOnAsAReaderLeavesNoTokenToOthersThatItHasUsed(t *testing.T) {
	t.Parallel()
	s := newServer(t, number(all))
	token := integer(s.granted(s.acquire("A:1", number(all))))
	s.wants(s.run("lock/release", "A:1", number(token), channelPrefix, number(retention), "0",
		number(token+5), "", "1"), "R")
	if next := integer(s.granted(s.acquire("B:1", "1"))); next != token+6 {
		t.Errorf("token %d after %d was used", next-token, 5)
	}
}

func TestAReleaseWithoutTheKeyOfFurtherHoldersServesOneAndNotifiesTheNext(t *testing.T) {
	t.Parallel()
	s := newServer(t, number(all))
	writer := s.granted(s.acquire("A:1", number(all)))
	s.wants(s.acquire("B:1", "1"), "Q")
	s.wants(s.acquire("C:1", "1"), "Q")
	own := []string{permitKeys[0], permitKeys[1], permitKeys[2], permitKeys[0]}
	reply, err := s.try("lock/release", own, "A:1", writer, channelPrefix, number(retention), "0", "0")
	if err != nil || reply != "R" {
		t.Fatalf("%q, %v", reply, err)
	}
	s.wantsTold("B")
	s.wantsTold("C")
	s.granted(s.acquire("B:1", "1"))
	s.wants(s.acquire("C:1", "1"), "G")
	first := s.granted(s.acquire("B:1", "1"))
	_, err = s.try("lock/release", own, "B:1", first, channelPrefix, number(retention), "0", "0")
	if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("while C is a further holder: %v", err)
	}
}

// waitersOfAWriter returns a lock that the writer A:1 holds, and its token. The queue has n readers, which
// are R1:1, R2:1 and so on.
func waitersOfAWriter(t *testing.T, n int) (s *server, token string) {
	s = newServer(t, number(all))
	token = s.granted(s.acquire("A:1", number(all)))
	for i := range n {
		s.wants(s.acquire(fmt.Sprintf("R%d:1", i+1), "1"), "Q")
	}
	return s, token
}

func TestAReleaseThatServesSeveralReadsEachWaiterOnce(t *testing.T) {
	t.Parallel()
	s, token := waitersOfAWriter(t, 20)
	s.wants(s.acquire("W:1", number(all)), "Q")
	s.wants(s.release("A:1", token), "R")
	if shared := s.space.Hash(permitKeys[0])["shared"]; shared != "19" {
		t.Errorf("%s further readers have the lock, and 19 are to have it", shared)
	}
	want := s.reads[:0:0]
	for i := range 20 {
		want = append(want, fmt.Sprintf("R%d:1", i+1))
	}
	if want = append(want, "W:1"); !slices.Equal(s.reads, want) {
		t.Errorf("it has read %q", s.reads)
	}
	if queue := s.space.Members(permitKeys[1]); !slices.Equal(queue, []string{"W:1"}) {
		t.Errorf("%q is queued", queue)
	}
}

func TestOneRequestServes200WaitersAndNotifiesTheNextToSendItsOwn(t *testing.T) {
	t.Parallel()
	s, token := waitersOfAWriter(t, 203)
	s.wants(s.release("A:1", token), "R")
	if granted := s.granting(); granted != 200 {
		t.Errorf("%d were granted the lock", granted)
	}
	if !slices.Contains(s.told, "R201 R201:1 0") {
		t.Errorf("R201 was not notified to send its request: %q", s.told[200:])
	}
	s.granted(s.acquire("R201:1", "1"))
	if granted := s.granting(); granted != 2 {
		t.Errorf("then %d others were granted the lock", granted)
	}
}

// granting counts the messages of the last script that say that a waiter was granted permits.
func (s *server) granting() (n int) {
	for _, m := range s.told {
		if len(strings.Fields(m)) == 6 { // the channel is the first word
			n++
		}
	}
	return n
}

func TestAnAttemptTakesThePermitsThatTheWaitersBeforeItLeave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, alive, permits, begins string }{
		{"a try", "0", "1", "G"},
		{"an attempt that waits if it must", number(liveness), "1", "G"},
		{"a try that wants too much", "0", "2", "Q"},
		{"an attempt that wants too much", number(liveness), "2", "Q"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, "2")
			s.granted(s.acquire("A:1", "2"))
			s.wants(s.acquire("W:1", "1"), "Q")
			s.now += micro(lockLease) // the lease of A has ended
			s.wants(s.request("T:1", c.permits, c.alive), c.begins)
			if s.granting() != 1 || !strings.HasPrefix(s.told[0], "W W:1 ") {
				t.Errorf("W was not granted a permit: %q", s.told)
			}
			queued := s.space.Members(permitKeys[1])
			if waits := c.begins == "Q" && c.alive != "0"; (len(queued) > 0) != waits {
				t.Errorf("%q is queued", queued)
			}
		})
	}
}

func TestTheFirstInTheQueueTakesAFreeLockByItsRequestThoughItsSessionHasNoSubscriber(t *testing.T) {
	t.Parallel()
	s := newServer(t, "")
	s.wants(s.acquire("A:1", "1"), "G")
	s.wants(s.acquire("B:1", "1"), "Q")
	s.wants(s.acquire("B:1", "1"), "Q")
	s.wants(s.acquire("C:1", "1"), "Q")
	s.deaf, s.now = "B", s.now+micro(lockLease)
	s.wants(s.acquire("B:1", "1"), "G")
}

func TestAWaiterThatWasNeverSeenToHaveASubscriberLooksWhenTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, "")
	s.wants(s.acquire("A:1", "1"), "G")
	s.deaf = "B"
	s.wants(s.acquire("B:1", "1"), "QD")
	s.wants(s.acquire("C:1", "1"), "QS")
	s.wants(s.acquire("B:1", "1"), "QD") // QBD or QSD would mean that C sends a request then
}

func TestAnAttemptWithoutAnEntryLeavesTheQueueWhenItIsGrantedTheLock(t *testing.T) {
	t.Parallel()
	s := newServer(t, "")
	s.wants(s.acquire("A:1", "1"), "G")
	s.wants(s.acquire("B:1", "1"), "Q")
	s.space = s.space.Clone()
	s.space.Delete(lockKeys[2])
	s.now += micro(lockLease)
	s.wants(s.acquire("B:1", "1"), "G")
	if queue := s.space.Members(lockKeys[1]); len(queue) > 0 {
		t.Errorf("the holder is still in the queue: %q", queue)
	}
}

func TestAServerWhoseClockIsSetBackGivesNoLeaseAgainThatWasReleasedAfterItsEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t, "")
	reply := s.acquire("A:1", "1")
	s.now += micro(lockLease)
	s.wants(s.release("A:1", strings.Fields(reply)[2]), "L")
	s.now -= micro(lockLease) / 2
	s.wants(s.acquire("B:1", "1"), "G")
}

func TestAServerWhoseClockIsSetBackGivesAFurtherHolderNoLeaseAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t, "2")
	s.granted(s.acquire("A:1", "1"))
	token := s.granted(s.acquire("B:1", "1"))
	s.now += micro(lockLease)
	s.wants(s.renew("B:1", token), "L")
	s.now -= micro(lockLease) / 2
	s.wants(s.tryAcquire("C:1", "2"), "Q") // by the new clock, the lease of A has not ended
	s.wants(s.tryAcquire("D:1", "1"), "G")
}
