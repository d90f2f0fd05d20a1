package wire

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// recording answers each request with its key, and records the keys of each pipeline.
type recording struct {
	slow time.Duration
	mu   sync.Mutex // guards the fields below
	sent []string   // the keys of each pipeline, joined by commas
}

func (r *recording) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recording) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return r.answer(cmd) }
}

func (r *recording) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return r.answer(cmds...) }
}

func (r *recording) answer(cmds ...redis.Cmder) error {
	time.Sleep(r.slow)
	var keys []string
	for _, cmd := range cmds {
		req := cmd.(*Request)
		key := req.Args()[3].(string)
		req.SetVal(key)
		keys = append(keys, key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, strings.Join(keys, ","))
	return nil
}

func (r *recording) link(t *testing.T) *Link {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(r)
	l := NewLink(rdb, Options{Context: t.Context()})
	l.Batching = -1
	return l
}

type keyed string

func (k keyed) Request(time.Time) *Request {
	return NewRequest(NewScript("return 1"), []any{string(k)}, nil)
}

func (k keyed) ask(ctx context.Context, l *Link) error {
	o := l.Call(ctx, k, 1, nil)
	if o.Err == nil && o.Reply != string(k) {
		return errors.New("the reply to " + string(k) + " is " + o.Reply)
	}
	return o.Err
}

func TestFirstRequestsLeaveTogetherAndInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &recording{}, &recording{slow: time.Hour}
		la, lb := a.link(t), b.link(t)
		began := time.Now()
		var took [5]time.Duration
		errs := Gather(t.Context(), 5, func(ctx context.Context, i int) error {
			switch i {
			case 0:
				time.Sleep(time.Second)
			case 1:
				return keyed("b1").ask(ctx, lb)
			case 3:
				return nil
			}
			err := keyed([]string{0: "a0", 2: "a2", 4: "a4"}[i]).ask(ctx, la)
			if i == 2 {
				err = errors.Join(err, keyed("again").ask(ctx, la))
			}
			took[i] = time.Since(began)
			return err
		})
		if err := errors.Join(errs...); err != nil || !slices.Equal(a.sent, []string{"a0,a2,a4", "again"}) ||
			!slices.Equal(b.sent, []string{"b1"}) {
			t.Errorf("%v: %q, %q", err, a.sent, b.sent)
		}
		if took[0] != time.Second || took[2] != time.Second || took[4] != time.Second {
			t.Errorf("a server waits for a slow one: %v", took)
		}
	})
}

func TestACallThatFailsWithoutARequestKeepsTheOthersFromTheirs(t *testing.T) {
	a := &recording{}
	l := a.link(t)
	if err := keyed("warm").ask(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	made := 0
	errs := Gather(t.Context(), 4, func(ctx context.Context, i int) error {
		made++
		if i == 2 {
			return io.EOF
		}
		return keyed("x").ask(ctx, l)
	})
	for i, want := range []error{ErrUnsent, ErrUnsent, io.EOF, ErrUnsent} {
		if !errors.Is(errs[i], want) {
			t.Errorf("call %d: %v, want %v", i, errs[i], want)
		}
	}
	if made != 3 || !slices.Equal(a.sent, []string{"warm"}) {
		t.Errorf("%d calls, and %q", made, a.sent)
	}
	if v := Judge(errs[0]); v != (Verdict{}) || l.Silent(t.Context(), "x") {
		t.Errorf("%+v of a request that was not sent", v)
	}
}

// cluster returns a Link to a Cluster whose only node is r.
func (r *recording) cluster(t *testing.T) *Link {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			nodes := []redis.ClusterNode{{Addr: "127.0.0.1:1"}}
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.OnNewNode(func(n *redis.Client) { n.AddHook(onlyScripts{r}) })
	l := NewLink(rdb, Options{Context: t.Context()})
	l.Batching = -1
	return l
}

// onlyScripts leaves out the requests that the client of a Cluster sends by itself.
type onlyScripts struct{ *recording }

func (r onlyScripts) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return nil
		}
		return r.answer(cmd)
	}
}

// The first call of a program may be the Lock of a MultiLock.
func TestTheVeryFirstRequestsToAClusterLeaveTogether(t *testing.T) {
	r := &recording{}
	l := r.cluster(t)
	errs := Gather(t.Context(), 3, func(ctx context.Context, i int) error {
		return keyed([]string{"{x}0", "{x}1", "{x}2"}[i]).ask(ctx, l)
	})
	if err := errors.Join(errs...); err != nil || !slices.Equal(r.sent, []string{"{x}0,{x}1,{x}2"}) {
		t.Errorf("%v: sent %q", err, r.sent)
	}
}

// If a call returns an error without a request, Gather sends no request of the earlier calls.
func TestACallThatFailsKeepsTheVeryFirstRequestsFromACluster(t *testing.T) {
	r := &recording{}
	l := r.cluster(t)
	errs := Gather(t.Context(), 2, func(ctx context.Context, i int) error {
		if i == 1 {
			return io.EOF
		}
		return keyed("{x}0").ask(ctx, l)
	})
	if len(r.sent) != 0 || !errors.Is(errs[0], ErrUnsent) {
		t.Errorf("sent %q, %v", r.sent, errs)
	}
}
