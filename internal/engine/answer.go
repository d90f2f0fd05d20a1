package engine

import (
	"strconv"
	"strings"
	"time"
)

// sighting is what was last learned of a holder other than the live streak: another session, or a former grant of this one.
type sighting struct {
	holder, about string
	at            time.Time // when that was learned
	until         time.Time // when the lease would have been over
}

// refused notes who holds the lock according to an answer of just now. mu held.
func (l *lock) refused(r answer) {
	now := time.Now()
	l.seen = &sighting{r.holder, strings.TrimSpace(r.about), now, now.Add(max(r.left, 0))}
}

// holder is who holds the lock as far as this session knows; nil if nobody is known to. What was learned before the
// acquisition began counts if the lease was not over then. mu held.
func (a *acquisition) holder() *LockedError {
	l := a.l
	if st := l.streak; st != nil {
		return &LockedError{Name: l.keys.Name, Holder: st.owner.(string), About: strings.TrimSpace(l.s.about.(string)), Remaining: max(0, time.Until(st.deadline()))}
	}
	if at := l.seen; at != nil && (!at.at.Before(a.begun) || a.begun.Before(at.until)) {
		return &LockedError{Name: l.keys.Name, Holder: at.holder, About: at.about, Remaining: max(0, time.Until(at.until))}
	}
	return nil
}

// lockedHere is the error of an acquisition that does not wait, for a lock that this session has, or asks for. mu held.
func (a *acquisition) lockedHere() *LockedError {
	e := a.holder()
	if e == nil {
		e = &LockedError{Name: a.l.keys.Name}
	}
	if a.l.streak != nil {
		e.Hint = selfHint
	}
	return e
}

// locked is the error of an acquisition that does not wait.
func (r answer) locked(name string) *LockedError {
	return &LockedError{Name: name, Holder: r.holder, About: strings.TrimSpace(r.about), Remaining: max(r.left, 0)}
}

// answer is a lock script's reply.
type answer struct {
	status byte
	now    int64 // Redis time, microseconds
	token  string
	left   time.Duration
	holder string
	about  string
	joined bool // it has the place of the attempt that it named
}

// parse reads 'G NOW TOKEN...', 'H NOW PTTL HOLDER TOKEN ABOUT', 'J...' as 'H...', 'V NOW' or 'S NOW'. Anything else
// is no answer: the zero one.
func parse(reply string) (a answer, ok bool) {
	if len(reply) < 3 || reply[1] != ' ' {
		return answer{}, false
	}
	now, rest, _ := strings.Cut(reply[2:], " ")
	var err error
	if a.now, err = strconv.ParseInt(now, 10, 64); err != nil {
		return answer{}, false
	}
	switch a.status = reply[0]; a.status {
	case 'G':
		a.token = rest
		ok = areTokens(rest)
	case 'H', 'J':
		a.status, a.joined = 'H', a.status == 'J'
		left, rest, _ := strings.Cut(rest, " ")
		a.holder, rest, _ = strings.Cut(rest, " ")
		a.token, a.about, _ = strings.Cut(rest, " ")
		var isToken bool
		_, isToken = tokenOf(a.token)
		a.left, ok = remaining(left)
		ok = ok && isToken
	case 'V', 'S':
		ok = true
	}
	if !ok {
		return answer{}, false
	}
	return a, true
}

// areTokens: one token or several, or one and the mark of a quorum's member.
func areTokens(words string) bool {
	word, rest, more := strings.Cut(words, " ")
	if _, ok := tokenOf(word); !ok {
		return false
	}
	return !more || rest == "+" || rest == "-" || areTokens(rest)
}

// tokenOf reads a token. Lua's numbers are exact that far.
func tokenOf(s string) (token int64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, false
	}
	return int64(n), true
}

// Keys can be given any time to live. Until maxLeft it is told, and a waiter looks again after maxRest.
const (
	maxLeft = 100 * 365 * 24 * time.Hour
	maxRest = 24 * time.Hour
)

// remaining reads a time to live in milliseconds; it is negative where there is none.
func remaining(ms string) (left time.Duration, ok bool) {
	n, err := strconv.ParseInt(ms, 10, 64)
	return time.Duration(max(-1, min(n, maxLeft.Milliseconds()))) * time.Millisecond, err == nil
}

// award is the grant that a reply names, which was sent at sent: what is left of its lease.
func (r answer) award(sent time.Time) award {
	token := number(r.token)
	return award{token: token, lease: r.left, since: sent, age: time.Duration(max(0, r.now-token)) * time.Microsecond}
}

// number is a token, or 0.
func number(token string) int64 {
	n, _ := tokenOf(token)
	return n
}
