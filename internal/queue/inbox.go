package queue

import (
	"context"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// inbox is where grants arrive for a session's cohorts: on its own channel, and in replies to requests about any of
// them. It is a part of the session.
type inbox struct {
	s *session.Session

	mu        sync.Mutex         // guards what follows; may be taken under Lock.Mu; only the session's is taken under it
	cohorts   map[string]*cohort // those that wait in Redis, by owner field
	listening bool               // to the session's own channel
}

type inboxKey struct{}

func inboxOf(s *session.Session) (*inbox, error) {
	return session.PartOf(s, inboxKey{}, func(s *session.Session) *inbox { return &inbox{s: s, cohorts: map[string]*cohort{}} })
}

// Shutdown has nothing to give back: waits end by themselves, and what is granted to them is released.
func (in *inbox) Shutdown(context.Context) error { return nil }

func (in *inbox) add(c *cohort) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cohorts[c.owner()] = c
}

func (in *inbox) remove(c *cohort) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.cohorts, c.owner())
}

// find is the cohort that waits with an attempt; nil if none does.
func (in *inbox) find(owner string) *cohort {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cohorts[owner]
}

// deliver gives an award to the attempt that it is for, if that still waits. The caller must be counted in the
// session's work.
func (in *inbox) deliver(owner string, w award) {
	if c := in.find(owner); c != nil {
		c.q.Mu.Lock()
		defer c.q.Mu.Unlock()
		c.q.learn(owner, w)
	}
}

// receive is deliver for what came on the session's channel: 'OWNER TOKEN NOW LEASE NONCE', or 'OWNER LEASE' for the
// next in the queue, which looks when that lease is over. Whoever may publish could have sent it, but only Redis was told the
// attempt's nonce; and to look costs a request.
func (in *inbox) receive(message string) {
	words := strings.Fields(message)
	if len(words) != 5 && len(words) != 2 {
		return
	}
	c := in.find(words[0])
	if c == nil {
		return
	}
	c.q.Mu.Lock()
	defer c.q.Mu.Unlock()
	switch {
	case len(words) == 2:
		if c.hint = milliseconds(words[1]); c.state == queued {
			c.q.schedule(c.hint)
		}
	case subtle.ConstantTimeCompare([]byte(c.nonce), []byte(words[4])) == 1:
		c.q.learn(words[0], award{token: protocol.TokenOrZero(words[1]), at: protocol.TokenOrZero(words[2]), lease: milliseconds(words[3])})
	}
}

// listen subscribes to the session's own channel while anybody is queued, and a little longer.
func (in *inbox) listen() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.listening || !in.s.Begin() {
		return
	}
	in.listening = true
	go in.run()
}

// run hands out what arrives on the session's channel.
func (in *inbox) run() {
	defer in.s.End()
	sub := in.s.Hub.Subscribe(in.s.Args.Channels.(string) + in.s.ID())
	defer sub.Close()
	idle := time.NewTicker(2 * time.Second)
	defer idle.Stop()
	quiet := false
	for {
		select {
		case <-sub.C():
		case <-idle.C:
			in.mu.Lock()
			if len(in.cohorts) > 0 {
				quiet = false
			} else if quiet {
				in.listening = false
				in.mu.Unlock()
				return
			} else {
				quiet = true
			}
			in.mu.Unlock()
			continue
		case <-in.s.Closing():
			return
		}
		messages, gap := sub.Take()
		for _, m := range messages {
			in.receive(m)
		}
		if gap { // a grant may have been missed
			in.beatAll()
		}
	}
}

// beatAll sends a heartbeat for each lock that has waiters in this session.
func (in *inbox) beatAll() {
	in.mu.Lock()
	queues := map[*queue]bool{}
	for _, c := range in.cohorts {
		queues[c.q] = true
	}
	in.mu.Unlock()
	for q := range queues {
		q.Mu.Lock()
		if len(q.standing) > 0 {
			q.schedule(0)
		}
		q.Mu.Unlock()
	}
}
