package engine

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A kind of lock whose Protocol has a Heartbeat queues in Redis: each acquisition
// has an attempt of its own there instead of standing behind another of its
// session, and is told by name when it is granted.

// notice ends or changes a queued acquisition's wait.
type notice struct {
	token string // granted
	anew  bool   // the attempt is in the queue no more: ask as a new one
	look  bool   // a goroutine of the same owner holds the lock by now
	err   error  // Redis has not answered for too long
}

// line is what a session's waiters for one lock share. Guarded by Session.queue.
type line struct {
	waiters map[string]*waiter // by owner field
	beat    *time.Timer        // the next heartbeat
	beatAt  time.Time          // when it is due; zero: none is
	beating bool               // one is under way
	again   bool               // another one was due meanwhile
	outage  time.Time          // since when it is not answered
}

// waiter is a queued acquisition. The token of its grant is handled once:
// whoever takes it out of Session.queued tells it, at most once.
type waiter struct {
	a      *acquisition
	base   time.Time // before the last request was sent whose answer was "not yet", or the first one was
	queued bool      // has been answered "not yet": it must be kept alive
	past   int64     // the token which that answer named: a grant that is not above it is over
	news   chan notice
}

// register makes the attempt findable, before its first request: a grant can
// arrive before the answer that it stands in the queue.
func (a *acquisition) register() {
	s := a.l.s
	a.w = &waiter{a: a, base: time.Now(), news: make(chan notice, 1)}
	s.queue.Lock()
	defer s.queue.Unlock()
	s.enlist(a.w)
}

// enlist is the opposite of take. queue held.
func (s *Session) enlist(w *waiter) {
	owner, l := w.a.owner.(string), w.a.l
	if l.line == nil {
		l.line = &line{waiters: map[string]*waiter{}}
	}
	s.queued[owner], l.line.waiters[owner] = w, w
}

// withdraw takes the attempt out again; a grant that comes later is nobody's.
func (a *acquisition) withdraw() {
	s := a.l.s
	s.queue.Lock()
	defer s.queue.Unlock()
	s.take(a.owner.(string))
}

// take removes a waiter; whoever gets it must tell it. queue held.
func (s *Session) take(owner string) *waiter {
	w := s.queued[owner]
	if w != nil {
		l := w.a.l
		delete(s.queued, owner)
		delete(l.line.waiters, owner)
		if len(l.line.waiters) == 0 && l.line.beat != nil {
			l.line.beat.Stop()
			l.line.beatAt = time.Time{}
		}
	}
	return w
}

// tell ends the wait of an attempt, if it still waits.
func (s *Session) tell(owner string, n notice) {
	s.queue.Lock()
	defer s.queue.Unlock()
	if w := s.queued[owner]; w == nil || n.token != "" && n.number() <= w.past {
		return
	}
	if w := s.take(owner); w != nil {
		w.news <- n // never full: a waiter is taken once
	}
}

func (n notice) number() int64 {
	i, _ := strconv.ParseInt(n.token, 10, 64)
	return i
}

// stood notes an answer "not yet" to a request sent at sent; token is the holder's then.
func (a *acquisition) stood(sent time.Time, left time.Duration, token string) {
	s := a.l.s
	s.queue.Lock()
	defer s.queue.Unlock()
	past := notice{token: token}.number()
	if s.queued[a.owner.(string)] != a.w {
		n := <-a.w.news // it was told already
		if n.token == "" || n.number() > past {
			a.w.news <- n
			return
		}
		// Of a grant to an earlier copy of the request, which ran out meanwhile: this copy queued the attempt again.
		s.enlist(a.w)
	}
	a.w.base, a.w.queued, a.w.past = sent, true, max(a.w.past, past)
	s.listen()
	a.l.schedule(left)
}

// shareWith has the queued goroutines of one owner look again: they may enter.
func (l *lock) shareWith(o *Owner) {
	s := l.s
	s.queue.Lock()
	defer s.queue.Unlock()
	if l.line == nil {
		return
	}
	for owner, w := range l.line.waiters {
		if w.a.as == o {
			s.take(owner)
			w.news <- notice{look: true}
		}
	}
}

// heldBy: a goroutine of this owner holds the lock.
func (l *lock) heldBy(o *Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return o != nil && l.streak != nil && l.root.owner == o
}

// listen subscribes to the session's own channel while anybody is queued, and a
// little longer. queue held.
func (s *Session) listen() {
	if s.listening || !s.begin() {
		return
	}
	s.listening = true
	go s.hear()
}

// hear hands out what arrives on the session's channel.
func (s *Session) hear() {
	defer s.end()
	sub := s.hub.Subscribe(s.Prefix + ":s:" + s.id)
	defer sub.Close()
	idle := time.NewTicker(2 * time.Second)
	defer idle.Stop()
	quiet := false
	for {
		select {
		case <-sub.C():
		case <-idle.C:
			s.queue.Lock()
			if len(s.queued) > 0 {
				quiet = false
			} else if quiet {
				s.listening = false
				s.queue.Unlock()
				return
			} else {
				quiet = true
			}
			s.queue.Unlock()
			continue
		case <-s.closing:
			return
		}
		messages, gap := sub.Take()
		for _, m := range messages {
			if owner, token, ok := strings.Cut(m, " "); ok {
				s.tell(owner, notice{token: token})
			}
		}
		if gap { // a grant may have been missed
			s.queue.Lock()
			for _, w := range s.queued {
				w.a.l.schedule(0)
			}
			s.queue.Unlock()
		}
	}
}

// schedule sets the next heartbeat: at a third of the liveness time, or when the
// holder's time is over, if that is earlier. queue held.
func (l *lock) schedule(left time.Duration) {
	d := l.s.Liveness / 3
	if left >= 0 {
		d = min(d, left+time.Millisecond)
	}
	at := time.Now().Add(d)
	if !l.line.beatAt.IsZero() && !at.Before(l.line.beatAt) {
		return // even if that is past: the timer may be late, but it comes
	}
	l.line.beatAt = at
	if l.line.beat == nil {
		l.line.beat = time.AfterFunc(d, l.heartbeat)
	} else {
		l.line.beat.Reset(d)
	}
}

// heartbeat keeps this session's waiters for the lock alive, and learns what
// became of those that no message told.
func (l *lock) heartbeat() {
	s := l.s
	if !s.begin() {
		return
	}
	defer s.end()
	s.queue.Lock()
	l.line.beatAt = time.Time{}
	if l.line.beating { // one at a time
		l.line.again = true
		s.queue.Unlock()
		return
	}
	args := []any{s.id, s.Liveness.Milliseconds(), l.keys.channel, keepMemoryArg}
	for owner, w := range l.line.waiters {
		if w.queued {
			args = append(args, owner)
		}
	}
	if len(args) == 4 {
		s.queue.Unlock()
		return
	}
	l.line.beating = true
	s.queue.Unlock()

	o := s.call(s.ctx, l.p.Heartbeat, &plain{l.keys, l.p.Heartbeat, args}, 1, nil)

	var grants [2]string
	s.queue.Lock()
	l.line.beating = false
	next := time.Duration(-1)
	if words := strings.Fields(o.reply); o.err == nil && len(words) >= 5 {
		l.line.outage = time.Time{}
		missing := map[string]bool{}
		for _, owner := range words[5:] {
			missing[owner] = true
		}
		for _, arg := range args[4:] {
			owner := arg.(string)
			switch w := l.line.waiters[owner]; {
			case w == nil:
			case owner == words[3]:
				grants = [2]string{owner, words[4]}
			case missing[owner]:
				s.take(owner)
				w.news <- notice{anew: true}
			default:
				w.base = o.sent
				w.past = max(w.past, notice{token: words[4]}.number())
			}
		}
		if ms, err := strconv.ParseInt(words[2], 10, 64); err == nil && ms >= 0 {
			next = time.Duration(ms) * time.Millisecond
		}
	} else {
		if l.line.outage.IsZero() {
			l.line.outage = o.sent
		}
		if !judge(o.err).transient || time.Since(l.line.outage) > s.Lease {
			for owner, w := range l.line.waiters {
				if w.queued {
					s.take(owner)
					w.news <- notice{err: o.err}
				}
			}
			l.line.outage = time.Time{}
		}
		next = backoff(2, 20*time.Millisecond, time.Second)
	}
	if l.line.again {
		l.line.again, next = false, 0
	}
	if len(l.line.waiters) > 0 {
		l.schedule(next)
	}
	s.queue.Unlock()
	if grants[0] != "" {
		s.tell(grants[0], notice{token: grants[1]})
	}
}

// competeQueued is compete for a kind of lock that queues in Redis. look: a
// goroutine of the same owner has got in, so run must look again.
func (a *acquisition) competeQueued() (h *hold, look bool, err error) {
	l := a.l
	s := l.s
	for void, fresh := 0, true; ; {
		if fresh {
			a.newAttempt()
			a.register()
			if l.heldBy(a.as) { // or shareWith finds this attempt
				a.withdraw()
				return nil, true, nil
			}
			fresh = false
		}
		o, err := a.exchange(nil)
		if err != nil {
			return nil, false, err // exchange's goroutine quits
		}
		r, _ := parse(o.reply)
		switch {
		case o.err != nil && a.ctx.Err() != nil:
			a.quit(o)
			return nil, false, a.over(false)
		case o.err != nil:
			a.quit(o)
			return nil, false, l.keys.failed(o.err)
		case r.status == 'V' && void < maxVoid:
			void++
			continue
		case r.status == 'G':
			a.withdraw()
			h, err := a.granted(o.sent, a.lease(), r.token)
			if errors.Is(err, errTooLate) && void < maxVoid {
				void++
				fresh = true
				continue
			}
			return h, false, err
		case r.status != 'H':
			a.quit(o)
			return nil, false, a.fail(unexpected(o.reply))
		}
		s.tell(r.holder, notice{token: r.token}) // a free lock may have gone to one of ours
		if a.try {
			a.quit(o)
			return nil, false, r.locked(l.keys.Name)
		}
		a.answered = true
		a.stood(o.sent, r.left, r.token)
		a.sayWaiting()
		n, err := a.await()
		switch {
		case err != nil:
			a.quit(o)
			return nil, false, err
		case n.token != "":
			h, err := a.granted(a.w.base, s.Liveness, n.token)
			if !errors.Is(err, errTooLate) {
				return h, false, err
			}
		case n.look:
			a.quit(o)
			return nil, true, nil
		case n.err != nil:
			a.quit(o)
			return nil, false, l.keys.failed(n.err)
		}
		// Dropped, or told too late, as in a process that was stopped: its place is
		// lost, it asks as a newcomer.
		void, fresh = 0, true
	}
}

// await waits for what becomes of the attempt. Its error says that the wait is over.
func (a *acquisition) await() (notice, error) {
	select {
	case n := <-a.w.news:
		return n, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-a.l.s.closing:
	}
	return notice{}, a.over(false)
}

// quit ends an attempt that was not granted, or whose grant nobody wants: it
// leaves the queue, and hands on what it may have been granted.
func (a *acquisition) quit(o outcome) {
	a.withdraw()
	r, _ := parse(o.reply)
	if r.status == 'G' || r.status == 'H' && !a.try || a.late != 0 {
		a.l.settle(a.grant, time.Now().Add(a.lease()+a.l.s.Liveness))
	}
}
