package wire

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// answering is a server in fake time, and a session's link to it.
type answering struct {
	after    atomic.Pointer[func(n int64) time.Duration] // how long the n-th request takes; negative: it is never answered
	reply    atomic.Pointer[string]                      // to each of them; nil: the script's
	requests atomic.Int64
	client   *redis.Client
	link     *Link
	script   *Script
}

const idle = time.Minute // for which a connection may be

// serve starts one that answers at once. dial, unless nil, is called first for each connection.
func serve(t *testing.T, dial func() error, hooks ...redis.Hook) *answering {
	s := &answering{script: NewScript("return 'x'")}
	s.answers(0)
	s.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, PoolSize: 1, ConnMaxIdleTime: idle,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dial != nil {
				if err := dial(); err != nil {
					return nil, err
				}
			}
			here, there := net.Pipe()
			go s.converse(there)
			return here, nil
		}})
	for _, h := range hooks {
		s.client.AddHook(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.link = NewLink(s.client, Options{Batching: 16, Logger: slog.New(slog.DiscardHandler), Refusal: func(err error) error { return err }, Context: ctx})
	t.Cleanup(func() {
		cancel()
		_ = s.client.Close()
		time.Sleep(time.Hour) // for dials that are under way
	})
	return s
}

// answers has each request take so long from now on; negative: it is never answered.
func (s *answering) answers(d time.Duration) {
	f := func(int64) time.Duration { return d }
	s.after.Store(&f)
}

// converse answers each write, which is one request, or what a client says of itself at first.
func (s *answering) converse(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		request, _ := in.Peek(in.Buffered())
		script := bytes.Contains(request, []byte("evalsha"))
		_, _ = in.Discard(len(request))
		if !script {
			_, _ = c.Write([]byte("-ERR unknown command\r\n"))
			continue
		}
		d := (*s.after.Load())(s.requests.Add(1))
		if d < 0 {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		time.Sleep(d)
		reply := "$1\r\nx\r\n"
		if r := s.reply.Load(); r != nil {
			reply = *r
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// Request makes a copy.
func (s *answering) Request(time.Time) Request { return NewRequest(s.script, []any{"key"}) }

func (s *answering) call() Outcome {
	return s.link.Call(context.Background(), s.script, s, Tries, nil)
}

// warm has the link know that the server is prompt, though the last request was not answered, or had to connect first.
func (s *answering) warm() {
	time.Sleep(mistrust)
	s.call()
	s.call()
	s.requests.Store(0)
}

// ask asks promptly, or else in the usual way, and reports whether the former was done.
func (s *answering) ask() (prompt bool) {
	sent := s.requests.Load()
	_, ok := s.link.Promptly(context.Background(), s.script, s)
	prompt = s.requests.Load() > sent
	if !ok {
		s.call()
	}
	return prompt
}

func TestRequestsArePromptOnceTheServerIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		if s.ask() {
			t.Error("the first request is prompt")
		}
		s.warm()
		for range 3 {
			if !s.ask() {
				t.Error("a request is not prompt")
			}
		}
		if n := s.requests.Load(); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// A caller waits no longer than for the fuse, though the server is frozen. The next one has a goroutine.
func TestAPromptRequestEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		s.warm()
		s.answers(-1)
		began := time.Now()
		o, ok := s.link.Promptly(context.Background(), s.script, s)
		if took := time.Since(began); ok || o.Unanswered == nil || took != fuse {
			t.Errorf("%v, %+v after %v", ok, o, took)
		}
		if o, ok := s.link.Promptly(context.Background(), s.script, s); ok || o.Unanswered != nil || s.requests.Load() != 1 {
			t.Errorf("the next one: %v, %+v, %d requests", ok, o, s.requests.Load())
		}
		s.answers(0)
		s.warm()
		if !s.ask() {
			t.Error("no request is prompt any more")
		}
	})
}

// A request that may have run is sent again. That is rare, however slow the server is.
func TestASlowServerIsSentFewRequestsTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(n int64) time.Duration
		most  func(took time.Duration) int64 // that are sent twice
	}{
		{"always slow", func(n int64) time.Duration { return fuse + time.Millisecond }, func(time.Duration) int64 { return 1 }},
		{"now and then", func(n int64) time.Duration { return time.Duration(n%3/2) * (fuse + time.Millisecond) }, func(took time.Duration) int64 { return 1 + int64(took/mistrust) }},
		{"slower than promptly", func(n int64) time.Duration { return promptly + time.Millisecond }, func(time.Duration) int64 { return 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, nil)
				s.warm()
				s.after.Store(&c.after)
				began := time.Now()
				const calls = 1000
				for range calls {
					s.ask()
				}
				if twice, most := s.requests.Load()-calls, c.most(time.Since(began)); twice > most {
					t.Errorf("%d of %d requests were sent twice in %v, want %d at most", twice, calls, time.Since(began), most)
				}
			})
		})
	}
}

// A host that does not answer keeps a caller no longer than its context lasts.
func TestAPromptRequestWithoutAConnectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		s := serve(t, func() error {
			if dead.Load() {
				time.Sleep(time.Minute)
				return context.DeadlineExceeded
			}
			return nil
		})
		s.warm()
		time.Sleep(2 * idle) // the connection is closed
		dead.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
		defer cancel()
		began, sent := time.Now(), s.requests.Load()
		if _, ok := s.link.Promptly(ctx, s.script, s); ok || time.Since(began) != 3*time.Millisecond || s.requests.Load() != sent {
			t.Errorf("%v after %v, %d requests", ok, time.Since(began), s.requests.Load()-sent)
		}
	})
}

// counting is a hook that counts requests.
type counting struct{ n *atomic.Int64 }

func (counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestNoHookIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before, after, sent atomic.Int64
		s := serve(t, nil, counting{&before})
		s.warm()
		before.Store(0)
		if !s.ask() {
			t.Error("a client with a hook asks no request promptly")
		}
		if n := s.requests.Load(); before.Load() != n {
			t.Errorf("the hook has seen %d of %d requests", before.Load(), n)
		}
		other := NewLink(s.client, s.link.options) // shares the hook of the first
		if _, ok := other.Promptly(context.Background(), s.script, s); !ok {
			t.Error("a client's second session asks no request promptly")
		}
		s.client.AddHook(counting{&after})
		sent.Store(s.requests.Load())
		for range 3 {
			if s.ask() {
				t.Error("a request was prompt that leaves out a hook")
			}
			time.Sleep(2 * mistrust)
		}
		if n := s.requests.Load() - sent.Load(); n != 3 || after.Load() != n {
			t.Errorf("%d requests, of which the hook has seen %d", n, after.Load())
		}
	})
}

// go-redis asks for a hook's functions for each connection, too, and nothing tells that from a copy that has hooks.
func TestAConnectionOpenedMeanwhilePutsPromptRequestsOffForAWhile(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	p := promptnessOf(client)
	p.prompt.Store(true)
	var opening sync.WaitGroup
	stop := make(chan struct{})
	opening.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.asked.Add(1)
			}
		}
	})
	for p.makeCopy() {
		p.copy.Store(nil)
	}
	close(stop)
	opening.Wait()
	if p.ready() {
		t.Error("it takes no notice")
	}
	p.born = p.born.Add(-mistrust)
	if !p.ready() {
		t.Error("no request is prompt any more")
	}
}

func TestPromptnessDoesNotKeepItsClient(t *testing.T) {
	of := func() weak.Pointer[redis.Client] {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		p := promptnessOf(client)
		p.prompt.Store(true)
		if !p.ready() {
			t.Error("no copy was made")
		}
		_ = client.Close()
		return weak.Make(client)
	}
	client := of()
	for range 100 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if _, known := clients.Load(client); !known {
			break
		}
	}
	if _, known := clients.Load(client); known || client.Value() != nil {
		t.Errorf("a closed client is kept: %v, %v", known, client.Value())
	}
}

// masters are two of a Cluster in fake time, of which the first has all slots, as far as its client knows.
func masters(t *testing.T, hooks ...redis.Hook) (first, second *answering, client *redis.ClusterClient) {
	servers := map[string]*answering{"192.0.2.1:1": {script: NewScript("return 'x'")}, "192.0.2.2:1": {script: NewScript("return 'x'")}}
	client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"192.0.2.1:1"}, Protocol: 2, DisableIdentity: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "192.0.2.1:1"}}}}, nil
		},
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			here, there := net.Pipe()
			go servers[addr].converse(there)
			return here, nil
		}})
	for _, h := range hooks {
		client.AddHook(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	link := NewLink(client, Options{Batching: 16, Logger: slog.New(slog.DiscardHandler), Refusal: func(err error) error { return err }, Context: ctx})
	for _, s := range servers {
		s.answers(0)
		s.link = link
	}
	t.Cleanup(func() {
		cancel()
		_ = client.Close()
		time.Sleep(time.Hour)
	})
	return servers["192.0.2.1:1"], servers["192.0.2.2:1"], client
}

func TestRequestsToAMasterOfAClusterArePrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ofAll, ofOne atomic.Int64
		s, _, client := masters(t, counting{&ofAll})
		client.OnNewNode(func(node *redis.Client) { node.AddHook(counting{&ofOne}) })
		s.warm()
		ofAll.Store(0)
		ofOne.Store(0)
		for range 3 {
			if !s.ask() {
				t.Error("a request is not prompt")
			}
		}
		if n := s.requests.Load(); n != 3 || ofAll.Load() != n || ofOne.Load() != n {
			t.Errorf("%d requests, of which the Cluster's hook has seen %d and the master's %d", n, ofAll.Load(), ofOne.Load())
		}
		s.answers(-1)
		began := time.Now()
		if o, ok := s.link.Promptly(t.Context(), s.script, s); ok || o.Unanswered == nil || time.Since(began) != fuse {
			t.Errorf("a frozen master: %v, %+v after %v", ok, o, time.Since(began))
		}
		s.answers(0)
		s.warm()
		client.AddHook(counting{&ofAll})
		for range 2 {
			if s.ask() {
				t.Error("a request was prompt that leaves out a hook of the Cluster's client")
			}
		}
	})
}

func TestAHookOfAMasterIsNotLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int64
		s, _, client := masters(t)
		s.warm()
		master, err := client.MasterForKey(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		master.AddHook(counting{&seen})
		for range 2 {
			if s.ask() {
				t.Error("a request was prompt that leaves out a hook of the master's client")
			}
		}
		if n := seen.Load(); n != 2 {
			t.Errorf("the hook has seen %d of 2 requests", n)
		}
	})
}

// A master that does not have the slot any more says where it is. The request is sent there in the usual way, and never ran before.
func TestAPromptRequestDoesNotFollowASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to, _ := masters(t)
		from.warm()
		moved := "-MOVED 1 192.0.2.2:1\r\n"
		from.reply.Store(&moved)
		o, ok := from.link.Promptly(t.Context(), from.script, from)
		if ok || o.Unanswered != nil || from.requests.Load() != 1 || to.requests.Load() != 0 {
			t.Errorf("%v, %+v, %d and %d requests", ok, o, from.requests.Load(), to.requests.Load())
		}
		if o := from.call(); o.Err != nil || to.requests.Load() != 1 {
			t.Errorf("%+v, %d requests to the new master", o, to.requests.Load())
		}
	})
}
