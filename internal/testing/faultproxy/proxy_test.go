package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impatient changes the options of a client so that it neither retries nor waits long.
func impatient(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Second }

// simulated runs a test in fake time. The test gets a proxy in front of a server, a client that uses the
// proxy, and a client that reaches the server directly.
func simulated(t *testing.T, test func(t *testing.T, p *Proxy, client, direct *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		t.Cleanup(m.Close)
		p := InMemory(t, m.Dial)
		test(t, p, p.Client(t, impatient), InMemory(t, m.Dial).Client(t))
	})
}

// always returns a function that chooses action for requests with one of these commands.
func always(action Action, names ...string) func(*Request) Action {
	return func(r *Request) Action {
		if r.Is(names...) {
			return action
		}
		return Pass
	}
}

func get(t *testing.T, c *redis.Client, key string) string {
	t.Helper()
	v, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return v
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPipelinedRequestsAreCountedAndAnsweredInOrder(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, _ *redis.Client) {
		pipe := client.Pipeline() // opens a connection of the kind that go-redis has for pipelines
		pipe.Ping(t.Context())
		_, err := pipe.Exec(t.Context())
		must(t, err)
		p.Reset()

		for range 1000 {
			pipe.Incr(t.Context(), "n")
		}
		cmds, err := pipe.Exec(t.Context())
		must(t, err)
		for i, cmd := range cmds {
			if n := cmd.(*redis.IntCmd).Val(); n != int64(i+1) {
				t.Fatalf("reply %d is %d", i, n)
			}
		}
		requests := p.Requests()
		if p.Count() != 1000 || p.Count("incr") != 1000 || p.Count("GET", "Incr") != 1000 ||
			len(requests) != 1000 {
			t.Errorf("counted %d, %d of them INCR", p.Count(), p.Count("incr"))
		}
		for i, r := range requests {
			if !slices.Equal(r.Args, []string{"incr", "n"}) || r.Seq != requests[0].Seq+i ||
				r.Conn != requests[0].Conn {
				t.Fatalf("request %d is %+v", i, r)
			}
		}
	})
}

func TestScriptsAreToldApart(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, _ *redis.Client) {
		script := redis.NewScript("return KEYS[1]")
		must(t, script.Run(t.Context(), client, []string{"k"}).Err())

		var ran []string
		for _, r := range p.Requests() {
			if s := r.Script(); s != "" {
				ran = append(ran, s)
			}
		}
		if want := []string{script.Hash(), "return KEYS[1]"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
	})
}

func TestADroppedRequestIsNotExecutedAndItsConnectionCut(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		p.OnRequest(always(DropAndCut, "incr"))
		if err := client.Incr(t.Context(), "n").Err(); err == nil || isTimeout(err) {
			t.Errorf("error %v", err)
		}
		if v := get(t, direct, "n"); v != "" {
			t.Errorf("n = %s", v)
		}
	})
}

func TestAPipelineIsCutAtTheDroppedRequest(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		p.OnRequest(always(DropAndCut, "decr"))
		for range 20 { // the replies before a cut must arrive in each round
			must(t, direct.FlushAll(t.Context()).Err())
			pipe := client.Pipeline()
			before := pipe.Set(t.Context(), "a", "1", 0)
			dropped := pipe.Decr(t.Context(), "b")
			after := pipe.Set(t.Context(), "c", "1", 0)
			_, _ = pipe.Exec(t.Context())

			// go-redis gives the error of the pipeline to each command without a reply. The first command has
			// a reply.
			if before.Val() != "OK" || dropped.Err() == nil || after.Val() != "" {
				t.Fatalf("got %v, %v, %v", before, dropped, after)
			}
			if got := get(t, direct, "a") + get(t, direct, "b") + get(t, direct, "c"); got != "1" {
				t.Fatalf("the server executed %q", got)
			}
		}
	})
}

func TestARequestWhoseReplyIsCutIsExecuted(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		p.OnRequest(always(CutReply, "incr"))
		for i := range 20 {
			pipe := client.Pipeline()
			before := pipe.Ping(t.Context())
			cut := pipe.Incr(t.Context(), "n")
			_, _ = pipe.Exec(t.Context())
			if before.Val() != "PONG" || cut.Err() == nil || isTimeout(cut.Err()) {
				t.Fatalf("got %v, %v", before, cut)
			}
			if v := get(t, direct, "n"); v != fmt.Sprint(i+1) { // no wait: the cut follows the reply
				t.Fatalf("n = %s after %d", v, i+1)
			}
		}
	})
}

func TestTheClientWaitsForASwallowedRequestThatIsNotExecuted(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		p.OnRequest(always(Swallow, "incr"))
		if err := client.Incr(t.Context(), "n").Err(); !isTimeout(err) {
			t.Errorf("error %v", err)
		}
		if v := get(t, direct, "n"); v != "" {
			t.Errorf("n = %s", v)
		}
	})
}

func TestTheClientWaitsForASwallowedReplyOfAnExecutedRequest(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		p.OnRequest(always(SwallowReply, "incr"))
		pipe := client.Pipeline()
		incr, later := pipe.Incr(t.Context(), "n"), pipe.Get(t.Context(), "n")
		_, _ = pipe.Exec(t.Context())
		if !isTimeout(incr.Err()) || later.Err() == nil { // the later reply must not be taken for this one
			t.Errorf("errors %v, %v", incr.Err(), later.Err())
		}
		if v := get(t, direct, "n"); v != "1" {
			t.Errorf("n = %s", v)
		}
	})
}

func TestAHeldRequestIsExecutedWhenReleased(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		asked := make(chan Request, 1)
		p.OnRequest(func(r *Request) Action {
			if !r.Is("incr") {
				return Pass
			}
			asked <- *r
			return Hold
		})
		failed := make(chan error, 1)
		go func() { failed <- client.Incr(t.Context(), "n").Err() }()

		r := <-asked
		if v := get(t, direct, "n"); v != "" {
			t.Errorf("n = %s before the release", v)
		}
		must(t, p.Release(r))
		if v := get(t, direct, "n"); v != "1" {
			t.Errorf("n = %s after the release", v)
		}
		if err := <-failed; !isTimeout(err) {
			t.Errorf("the client got error %v", err)
		}
		if p.Release(r) == nil || len(p.Held()) != 0 {
			t.Error("released twice")
		}
	})
}

func TestARecordedRequestCanBeReplayed(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, _, direct *redis.Client) {
		client := p.Client(t) // has a longer timeout than impatient sets
		must(t, client.Incr(t.Context(), "n").Err())
		requests := p.Requests()
		r := requests[len(requests)-1]

		if reply, err := p.Replay(r); reply != "2" || err != nil {
			t.Errorf("reply %q, error %v", reply, err)
		}
		if p.Count("incr") != 1 {
			t.Error("a replay counts as a client's request")
		}
		must(t, direct.Set(t.Context(), "n", "text", 0).Err())
		if _, err := p.Replay(r); !errors.As(err, new(ReplyError)) {
			t.Errorf("error %v", err)
		}
	})
}

func TestMessagesAreCountedAsTheyReachClients(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			simulated(t, func(t *testing.T, p *Proxy, _, _ *redis.Client) {
				client := p.Client(t, func(o *redis.Options) { o.Protocol = protocol })
				sub := client.Subscribe(t.Context(), "a", "b")
				defer func() { _ = sub.Close() }()
				must(t, sub.PSubscribe(t.Context(), "x*"))
				for range 3 {
					if _, ok := receive(t, sub).(*redis.Subscription); !ok {
						t.Fatal("not a confirmation")
					}
				}

				for _, channel := range []string{"a", "b", "nobody", "xyz"} {
					must(t, client.Publish(t.Context(), channel, "to "+channel).Err())
				}
				for range 3 {
					if _, ok := receive(t, sub).(*redis.Message); !ok {
						t.Fatal("not a message")
					}
				}
				var got []string
				for _, m := range p.Pushed() {
					got = append(got, m.Kind+" "+m.Channel+" "+m.Payload)
				}
				slices.Sort(got) // the order varies, because miniredis uses several goroutines
				if want := []string{"message a to a", "message b to b",
					"pmessage xyz to xyz"}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if p.CountPushed() != 3 || p.Count("subscribe") != 1 {
					t.Errorf("%d pushed, %d SUBSCRIBE", p.CountPushed(), p.Count("subscribe"))
				}

				// The proxy must not take a message for the reply to a request.
				must(t, sub.Unsubscribe(t.Context(), "a"))
				must(t, sub.Ping(t.Context(), "still there"))
				if s, ok := receive(t, sub).(*redis.Subscription); !ok || s.Kind != "unsubscribe" {
					t.Error("no confirmation")
				}
				if pong, ok := receive(t, sub).(*redis.Pong); !ok || pong.Payload != "still there" {
					t.Error("no pong")
				}
				p.OnRequest(always(CutReply, "ping"))
				must(t, sub.Ping(t.Context()))
				if m, err := sub.ReceiveTimeout(t.Context(), 5*time.Second); err == nil {
					t.Errorf("a pong that was cut came as %v", m)
				}
			})
		})
	}
}

func receive(t *testing.T, sub *redis.PubSub) any {
	t.Helper()
	m, err := sub.ReceiveTimeout(t.Context(), 5*time.Second)
	must(t, err)
	return m
}

func TestABlackHoleLosesRequestsOrReplies(t *testing.T) {
	for name, toServer := range map[string]bool{"requests": true, "replies": false} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
				bystander := p.Client(t, impatient).Conn()
				defer func() { _ = bystander.Close() }()
				must(t, bystander.Ping(t.Context()).Err())
				must(t, client.Ping(t.Context()).Err())
				before := p.Conns()

				p.BlackHole(toServer, !toServer)
				if err := client.Incr(t.Context(), "n").Err(); !isTimeout(err) {
					t.Errorf("error %v", err)
				}
				if v := get(t, direct, "n"); (v == "") != toServer {
					t.Errorf("n = %q", v)
				}
				p.BlackHole(false, false)

				p.Reset()
				must(t, bystander.Ping(t.Context()).Err())
				must(t, client.Ping(t.Context()).Err())
				if p.Conns() > before {
					t.Errorf("%d connections, were %d", p.Conns(), before)
				}
				if first := p.Requests()[0]; !first.Is("ping") { // a HELLO would mean a new connection
					t.Errorf("the bystander was cut: it sent %v", first.Args)
				}
			})
		})
	}
}

func TestAConnectionThatLostSomethingIsCutOnHealing(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, _, _ *redis.Client) {
		conn, err := p.Dial(t.Context(), "", "")
		must(t, err)
		defer func() { _ = conn.Close() }()
		p.BlackHole(false, true)
		_, err = conn.Write(encode([]string{"PING"}))
		must(t, err)
		reply := make(chan error, 1)
		go func() { _, err := conn.Read(make([]byte, 16)); reply <- err }()
		synctest.Wait() // until the reply is lost
		p.BlackHole(false, false)
		if err := <-reply; err == nil || isTimeout(err) {
			t.Errorf("error %v", err)
		}
	})
}

func TestDelayedRequestsTravelTogether(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, _, _ *redis.Client) {
		client := p.Client(t)
		_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.Ping(t.Context())
			return nil
		})
		must(t, err) // the client is connected now

		const eachWay = 50 * time.Millisecond
		p.SetDelay(eachWay)
		begin := time.Now()
		pipe := client.Pipeline()
		for range 100 {
			pipe.Incr(t.Context(), "n")
		}
		_, err = pipe.Exec(t.Context())
		must(t, err)
		if took := time.Since(begin); took != 2*eachWay {
			t.Errorf("took %v", took)
		}
	})
}

func TestARequestUnderWayOutlivesItsClient(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		must(t, client.Ping(t.Context()).Err())
		sub := direct.Subscribe(t.Context(), "arrived")
		defer func() { _ = sub.Close() }()
		_ = receive(t, sub)

		p.SetDelay(2 * time.Second) // more than the timeout of the client
		if err := client.Publish(t.Context(), "arrived", "late").Err(); !isTimeout(err) {
			t.Errorf("error %v", err)
		}
		if m, ok := receive(t, sub).(*redis.Message); !ok || m.Payload != "late" {
			t.Errorf("got %v", m)
		}
	})
}

func TestAllConnectionsCanBeCut(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, _ *redis.Client) {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		must(t, conn.Ping(t.Context()).Err())
		p.CutAll()
		if err := conn.Ping(t.Context()).Err(); err == nil {
			t.Error("the connection survived")
		}
		must(t, client.Ping(t.Context()).Err()) // needs a new connection
	})
}

func TestNoConnectionIsServedWhileRefused(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, _ *redis.Client) {
		must(t, client.Ping(t.Context()).Err())
		p.Refuse(true)
		if err := client.Ping(t.Context()).Err(); err == nil || p.Conns() != 0 {
			t.Errorf("error %v, %d connections", err, p.Conns())
		}
		p.Refuse(false)
		must(t, client.Ping(t.Context()).Err())
	})
}

func TestManyClientsAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, _, direct *redis.Client) {
		client := p.Client(t)
		done := make(chan error)
		for range 16 {
			go func() {
				var err error
				for range 100 {
					err = errors.Join(err, client.Incr(context.Background(), "n").Err())
				}
				done <- err
			}()
		}
		for range 16 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if v := get(t, direct, "n"); v != "1600" || p.Count("incr") != 1600 {
			t.Errorf("n = %s, counted %d", v, p.Count("incr"))
		}
	})
}

func TestAReplyIsToldBeforeTheClientHasIt(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, _ *redis.Client) {
		told := make(chan string, 16)
		p.OnReply(func(r Request) { told <- r.Args[0] })
		_ = get(t, client, "k")
		p.OnReply(nil)
		_ = get(t, client, "k")
		close(told)
		var all []string
		for name := range told {
			all = append(all, name)
		}
		if n := len(all); n == 0 || all[n-1] != "get" || slices.Contains(all[:n-1], "get") {
			t.Errorf("told of %v, not of one get after what greets", all)
		}
	})
}

func TestAProxyThatStoppedRecordingForwardsAndRecordsNothing(t *testing.T) {
	simulated(t, func(t *testing.T, p *Proxy, client, direct *redis.Client) {
		sub := client.Subscribe(t.Context(), "c")
		defer func() { _ = sub.Close() }()
		_ = receive(t, sub)
		p.Reset()
		p.StopRecording()
		must(t, direct.Publish(t.Context(), "c", "m").Err())
		_ = receive(t, sub)
		must(t, client.Ping(t.Context()).Err())
		if p.Count() != 0 || p.CountPushed() != 0 {
			t.Errorf("it has %v and %v", p.Requests(), p.Pushed())
		}
	})
}
