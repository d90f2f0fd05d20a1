package explore

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/proof/explore/keyspace"
)

// lockServer runs the scripts of locks one after another.
type lockServer struct {
	t     *testing.T
	now   int64
	space *keyspace.Space
	deaf  string // name of a session without a subscription, or ""
}

func newLockServer(t *testing.T) *lockServer {
	return &lockServer{t: t, now: epoch, space: keyspace.New()}
}

func (s *lockServer) run(name string, argv ...string) string {
	s.t.Helper()
	compiled, err := keyspace.Compile(name, script.Text(name))
	if err != nil {
		s.t.Fatal(err)
	}
	env := keyspace.Env{Now: s.now, Listening: func(channel string) int {
		if s.deaf != "" && channel == channelPrefix+s.deaf {
			return 0
		}
		return 1
	}}
	did := compiled.Run(s.space, env, lockKeys, argv)
	if did.Err != nil {
		s.t.Fatal(did.Err)
	}
	s.space = did.Space
	return did.Reply
}

func (s *lockServer) acquire(owner string) string {
	s.t.Helper()
	return s.run("lock/acquire", owner, "1", number(s.now+patience()), number(lockLease), "me",
		number(retention), number(liveness), channelPrefix, nonce(owner), "1")
}

func (s *lockServer) release(owner, token string) string {
	s.t.Helper()
	return s.run("lock/release", owner, token, channelPrefix, number(retention), "0", "0")
}

func (s *lockServer) wants(reply, begins string) {
	s.t.Helper()
	if !strings.HasPrefix(reply, begins) {
		s.t.Errorf("the reply is %q, and is to begin with %q", reply, begins)
	}
}

func TestTheFirstInTheQueueTakesAFreeLockByItsRequestThoughItsSessionHasNoSubscriber(t *testing.T) {
	t.Parallel()
	s := newLockServer(t)
	s.wants(s.acquire("A:1"), "G")
	s.wants(s.acquire("B:1"), "Q")
	s.wants(s.acquire("B:1"), "Q")
	s.wants(s.acquire("C:1"), "Q")
	s.deaf, s.now = "B", s.now+micro(lockLease)
	s.wants(s.acquire("B:1"), "G")
}

func TestAWaiterThatWasNeverSeenToHaveASubscriberLooksWhenTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := newLockServer(t)
	s.wants(s.acquire("A:1"), "G")
	s.deaf = "B"
	s.wants(s.acquire("B:1"), "QD")
	s.wants(s.acquire("C:1"), "QS")
	s.wants(s.acquire("B:1"), "QD") // and not QBD or QSD, by which C would have to look
}

func TestAnAttemptWithoutAnEntryLeavesTheQueueWhenItIsGrantedTheLock(t *testing.T) {
	t.Parallel()
	s := newLockServer(t)
	s.wants(s.acquire("A:1"), "G")
	s.wants(s.acquire("B:1"), "Q")
	s.space = s.space.Clone()
	s.space.Delete(lockKeys[2])
	s.now += micro(lockLease)
	s.wants(s.acquire("B:1"), "G")
	if queue := s.space.Members(lockKeys[1]); len(queue) > 0 {
		t.Errorf("the holder is still in the queue: %q", queue)
	}
}

func TestAServerWhoseClockIsSetBackGivesNoLeaseAgainThatWasReleasedAfterItsEnd(t *testing.T) {
	t.Parallel()
	s := newLockServer(t)
	reply := s.acquire("A:1")
	s.now += micro(lockLease)
	s.wants(s.release("A:1", strings.Fields(reply)[2]), "L")
	s.now -= micro(lockLease) / 2
	s.wants(s.acquire("B:1"), "G")
}
