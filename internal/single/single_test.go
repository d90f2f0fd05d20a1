package single

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	bg   = context.Background()
	kind = &mutex.Kind{
		Letter: protocol.Reentrant, Lock: wire.NewScript("lock"), Release: wire.NewScript("release"),
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			return protocol.NewKeys(s.Prefix, protocol.Reentrant, name)
		},
		Store:   Store,
		NewLock: broadcast.NewLock,
		Alarm:   broadcast.Alarm,
	}
)

func TestARequestWithoutAnAnswerMayStillArrive(t *testing.T) {
	for _, lost := range []bool{false, true} {
		asked := 0
		s := fake.Session(t, fake.Client(t, func(fake.Call) (string, error) {
			if asked++; lost && asked == 1 {
				return "", io.EOF
			}
			return "G 2000000 7", nil
		}))
		s.Clock.Heard(1_000_000, time.Now())
		m := mutex.New(s, kind, "x", mutex.Config{})
		l, err := m.Enter()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Leave()
		a := mutex.NewAcquisition(bg, l, mutex.Config{})
		a.NewAttempt()
		o := Store(s).Ask(a, wire.Tries, new(atomic.Bool))
		if o.Err != nil || o.Reply != "G 2000000 7" || (o.Unanswered != nil) != lost {
			t.Errorf("lost %v: %+v", lost, o)
		}
		if until := a.Grant.Late; (until > 1_000_000) != lost || lost && until != a.NotAfter {
			t.Errorf("lost %v: a copy may arrive until %d", lost, until)
		}
		if s.Clock.Now(o.Sent) != 2_000_000 {
			t.Error("the clock is not known")
		}
	}
}

// node is one server of a cluster, on which a request takes a second.
type node struct {
	client  *redis.Client
	release []error // what it says to releases, one after the other; then it releases

	mu       sync.Mutex // guards what follows
	released []string   // the keys
}

func (n *node) answer(c fake.Call) (string, error) {
	if c.Is(kind.Lock) {
		return "G 1 7", nil
	}
	time.Sleep(time.Second)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.release) > 0 {
		err := n.release[0]
		n.release = n.release[1:]
		return "", err
	}
	n.released = append(n.released, c.Keys[0])
	return "R 0", nil
}

// cluster has the locks whose names begin with a on one server, and the others on another.
type cluster struct {
	wire.Client
	a, b node
}

func (c *cluster) MasterForKey(_ context.Context, key string) (*redis.Client, error) {
	if strings.Contains(key, "{a") {
		return c.a.client, nil
	}
	return c.b.client, nil
}

func (c *cluster) Process(ctx context.Context, cmd redis.Cmder) error {
	to, _ := c.MasterForKey(ctx, cmd.Args()[3].(string))
	return to.Process(ctx, cmd)
}

// refusal is a server's error that will not pass.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

func TestManyReleasesGoToTheirServersAtOnceAndEachErrorNamesItsLock(t *testing.T) {
	for _, c := range []struct {
		what     string
		release  []error // what the second server says at first
		released []string
		err      string
		took     time.Duration
	}{
		{what: "no error", released: []string{"p:r:{b1}"}, took: 2 * time.Second}, // that of the first server
		{what: "an answer was lost", release: []error{io.EOF, io.EOF}, released: []string{"p:r:{b1}"}, took: 3 * time.Second},
		{what: "refused", release: []error{refusal("WRONGTYPE")}, err: `lock "b1": WRONGTYPE`, took: 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := &cluster{}
			all.a.client, all.b.client = fake.Client(t, all.a.answer), fake.Client(t, all.b.answer)
			all.b.release = c.release
			s, err := session.New(all, fake.Config())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a1", "b1", "a2"} {
				m := mutex.New(s, kind, name, mutex.Config{})
				_, hold, err := m.Acquire(bg, mutex.Config{}, false)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = hold.Unlock(bg) }()
			}
			start := time.Now()
			err = s.Shutdown(bg)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "a1")) {
				t.Errorf("%s: %v", c.what, err)
			}
			if took := time.Since(start); took < c.took || took >= c.took+time.Second {
				t.Errorf("%s: it took %v", c.what, took)
			}
			slices.Sort(all.a.released)
			if !slices.Equal(all.a.released, []string{"p:r:{a1}", "p:r:{a2}"}) || !slices.Equal(all.b.released, c.released) {
				t.Errorf("%s: released are %q and %q", c.what, all.a.released, all.b.released)
			}
		})
	}
}
