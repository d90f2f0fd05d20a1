package session

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

var script = wire.NewScript("return 'K'")

// hold is a Lessee that records the calls of its methods.
type hold struct {
	watchdog.Lease
	name   string
	failed []error
	ended  chan bool // gets the argument of LeaseLost
}

func newHold(name string) *hold {
	h := &hold{name: name, ended: make(chan bool, 1)}
	h.Owner = h
	return h
}

func (h *hold) LeaseKey() string { return h.name }

func (h *hold) Renewal() (*wire.Request, bool) {
	return wire.NewRequest(script, []any{h.name}, nil), true
}

func (h *hold) LeaseLost(deadlinePassed bool) { h.ended <- deadlinePassed }

func (h *hold) RenewalFailed(err error) { h.failed = append(h.failed, err) }

const onTheWay = 10 * time.Millisecond

// server has the reply to the renewal of each hold, by the name of the hold. A reply is a word or an error.
type server map[string]any

// client returns a client whose pipelines the server answers.
func (s server) client(t *testing.T) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("there is no server")
		}})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(s)
	return client
}

// open makes a session on a client whose pipelines the server answers.
func (s server) open(t *testing.T) *Session {
	t.Helper()
	return s.openWith(t, s.client(t))
}

func (s server) openWith(t *testing.T, client wire.Client) *Session {
	t.Helper()
	session, err := New(client, sound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, session) })
	return session
}

func (s server) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s server) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, commands []redis.Cmder) error {
		time.Sleep(onTheWay)
		for _, c := range commands {
			r := c.(*wire.Request)
			switch answer := s[r.Args()[3].(string)].(type) {
			case string:
				r.SetVal(answer)
			case error:
				r.SetErr(answer)
			}
		}
		return nil
	}
}

// reply is an error that a server answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestARenewalCountsFromItsSendingAndEachLeaseHasItsOwnResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := reply("WRONGTYPE Operation against a key")
		s := server{"kept": "K", "gone": "L", "refused": refused,
			"spoilt": reply("ERR LOCKLINE k,f,v,why .")}.open(t)
		var leases []*watchdog.Lease
		for _, name := range []string{"kept", "gone", "refused", "spoilt"} {
			leases = append(leases, &newHold(name).Lease)
		}
		r := (*keeper)(s)
		sent := time.Now()
		results := r.Renew(context.Background(), r.Server(leases[0]), leases)
		if len(results) != len(leases) {
			t.Fatalf("%d results", len(results))
		}
		if r, want := results[0], (watchdog.Result{Deadline: sent.Add(protocol.Valid(s.Lease))}); r != want {
			t.Errorf("what was renewed: %+v, want %+v", r, want)
		}
		if r := results[1]; !r.Gone || r.Err != nil {
			t.Errorf("what was gone: %+v", r)
		}
		if r := results[2]; r.Gone || r.Err != refused {
			t.Errorf("what was refused: %+v", r)
		}
		var spoilt *wire.ValueError
		if r := results[3]; r.Gone || !errors.As(r.Err, &spoilt) || spoilt.Why != "why" {
			t.Errorf("what a script refused: %+v", r)
		}
	})
}

func TestTheWatchdogTellsALesseeWhatBecameOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("it is down")
		s := server{"gone": "L", "failing": down, "kept": "K"}.open(t)
		defer time.Sleep(onTheWay) // in fake time, so that a renewal in flight ends before the test
		defer end(t, s)
		gone, failing, kept := newHold("gone"), newHold("failing"), newHold("kept")
		for _, h := range []*hold{gone, failing, kept} {
			s.Watchdog.Add(&h.Lease, time.Now().Add(30*time.Second), 10*time.Second)
		}
		if passed := <-gone.ended; passed || time.Since(s.born) != 10*time.Second+onTheWay {
			t.Errorf("what is gone ends after %v, by its deadline: %v", time.Since(s.born), passed)
		}
		if passed := <-failing.ended; !passed || time.Since(s.born) != 30*time.Second {
			t.Errorf("what is not renewed ends after %v, by its deadline: %v", time.Since(s.born), passed)
		}
		if len(failing.failed) == 0 || failing.failed[0] != down {
			t.Errorf("of failures it is told %v", failing.failed)
		}
		if len(kept.ended) > 0 || len(kept.failed) > 0 || len(gone.failed) > 0 {
			t.Errorf("told of another's failure: %v, %v", kept.failed, gone.failed)
		}
	})
}

// labeled is a client of a user's own type. Go cannot compare its values.
type labeled struct {
	wire.Client
	_ []string
}

func TestALeaseIsRenewedThroughAClientThatGoCannotCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := server{"kept": "K"}
		s := r.openWith(t, labeled{Client: r.client(t)})
		defer time.Sleep(onTheWay) // in fake time, so that a renewal in flight ends before the test
		defer end(t, s)
		kept := newHold("kept")
		s.Watchdog.Add(&kept.Lease, time.Now().Add(30*time.Second), 10*time.Second)
		time.Sleep(time.Minute)
		if len(kept.ended) > 0 || len(kept.failed) > 0 {
			t.Errorf("the lease has ended, or renewals have failed: %v", kept.failed)
		}
		if other := r.openWith(t, labeled{Client: r.client(t)}); s.Link.Leads(other.Link) {
			t.Error("two clients are said to lead to one server")
		}
	})
}
