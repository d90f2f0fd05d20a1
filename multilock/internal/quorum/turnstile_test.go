package quorum

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestClientsLookForATurnstileInTheOrderInWhichTheyListServers(t *testing.T) {
	const servers = 3
	place := func(q *Quorum, listed []*session.Session, name string) (order []int) {
		for _, m := range q.line(name) {
			order = append(order, slices.Index(listed, m.Session))
		}
		return order
	}
	one, other := memberSessions(t, servers), memberSessions(t, servers) // their ids are in another order, or will be in some run
	a, b := makeQuorum(t, 0, one...), makeQuorum(t, 0, other...)
	firsts := map[int]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		order := place(a, one, name)
		if !slices.Equal(order, place(b, other, name)) {
			t.Errorf("%s: %v and %v", name, order, place(b, other, name))
		}
		firsts[order[0]] = true
		for i, at := range order {
			if at != (order[0]+i)%servers {
				t.Errorf("%s: %v", name, order)
			}
		}
	}
	if len(firsts) != servers {
		t.Errorf("all of them are at %v", firsts)
	}
}

// refusal is a server's error that will not pass.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

func TestWhereOneStandsInLine(t *testing.T) {
	var (
		down   = &net.OpError{Op: "dial", Err: io.EOF}
		denied = refusal("NOPERM")
	)
	for _, c := range []struct {
		what    string
		servers []error // what each says, in the order in which they are asked; nil: it grants
		slow    int     // so many of the first are known to be
		asked   []int64 // once
		again   []int64 // by the next that stands
		void    bool
		warned  bool
	}{
		{what: "the first", servers: []error{nil, nil, nil}, asked: []int64{1, 0, 0}, again: []int64{2, 0, 0}},
		{what: "the first is slow", servers: []error{nil, nil, nil}, slow: 1, asked: []int64{0, 1, 0}, again: []int64{0, 2, 0}},
		{what: "the first is down", servers: []error{down, nil, nil}, asked: []int64{1, 1, 0}, again: []int64{2, 2, 0}},
		{what: "the first has no such rights", servers: []error{denied, nil, nil}, asked: []int64{1, 1, 0}, again: []int64{1, 2, 0}, warned: true},
		{what: "all are slow", servers: []error{nil, nil, nil}, slow: 3, asked: []int64{0, 0, 0}, again: []int64{0, 0, 0}, void: true},
		{what: "none has", servers: []error{denied, denied, denied}, asked: []int64{1, 1, 1}, again: []int64{1, 1, 1}, void: true, warned: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make([]atomic.Int64, len(c.servers))
				var log bytes.Buffer
				var members []*session.Session
				serves := make([]int, len(c.servers)) // by member: its number in the line
				for i := range c.servers {
					s := fake.Session(t, fake.Client(t, func(call fake.Call) (string, error) {
						if len(call.Argv) < 11 { // a release
							return "R", nil
						}
						asked[serves[i]].Add(1)
						return "G 1000000000000000 1000000000000000", c.servers[serves[i]]
					}))
					s.Logger = slog.New(slog.NewTextHandler(&log, nil))
					members = append(members, s)
				}
				q := makeQuorum(t, timeout, members...)
				for i, m := range q.line("x") {
					serves[slices.Index(members, m.Session)] = i
					if i < c.slow {
						m.suspect(nil)
						m.probing = true // it is not asked whether it still is
					}
				}
				m := q.Mutex("x", mutex.Config{})
				l, err := m.Enter()
				if err != nil {
					t.Fatal(err)
				}
				defer l.Leave()
				for _, want := range [][]int64{c.asked, c.again} {
					p := q.Stand(l)
					<-p.Come()
					if p.Void() != c.void || p.Behind() {
						t.Errorf("void %v, behind others %v", p.Void(), p.Behind())
					}
					p.Leave()
					synctest.Wait()
					for i := range asked {
						if n := asked[i].Load(); n != want[i] {
							t.Errorf("server %d was asked %d times, want %v", i, n, want)
						}
					}
				}
				if warned := strings.Contains(log.String(), "cannot stand in line"); warned != c.warned {
					t.Errorf("the log: %s", log.String())
				}
			})
		})
	}
}

// One that stands at a server which falls silent goes on to the next. Before that, it learns there who has the lock.
func TestOneThatStandsInLineLooksWhetherTheServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holder = `{"ttl": 60000, "lock": {"s:1": "1", "t": "7", "d": "12@host label"}}`
		var silent atomic.Bool
		var first atomic.Pointer[session.Session]
		var members []*session.Session
		for i := range 3 {
			members = append(members, fake.Session(t, fake.Client(t, func(call fake.Call) (string, error) {
				switch {
				case first.Load() != members[i]:
					if len(call.Argv) < 11 {
						return "R", nil
					}
					return "G 1000000000000000 1000000000000000", nil
				case silent.Load():
					time.Sleep(time.Minute)
					return "", io.EOF
				case len(call.Argv) == 0:
					return holder, nil
				case len(call.Argv) < 11:
					return "R", nil
				}
				return "H 1000000000000000 60000 t:1 5 13@other", nil
			})))
		}
		q := makeQuorum(t, timeout, members...)
		first.Store(q.line("x")[0].Session)
		m := q.Mutex("x", mutex.Config{})
		l, err := m.Enter()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Leave()
		p := q.Stand(l)
		defer p.Leave()
		time.Sleep(time.Millisecond)
		p.Look(true)
		synctest.Wait()
		a := mutex.NewAcquisition(t.Context(), l, mutex.Config{})
		if err := a.WhyOver(false); !strings.Contains(err.Error(), "locked by s:1 (12@host label)") {
			t.Errorf("%v", err)
		}
		silent.Store(true)
		time.Sleep(silence + 1)
		p.Look(false)
		select {
		case <-p.Come():
			t.Error("it has come at a server that does not answer")
		case <-time.After(timeout - 1):
		}
		select {
		case <-p.Come():
		case <-time.After(time.Second):
			t.Error("it stands at a server that does not answer")
		}
		if p.Void() {
			t.Error("it stands nowhere")
		}
	})
}
