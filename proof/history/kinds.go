package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// The kinds of locks and of other primitives. A Red uses all servers, and the other kinds use the first
// server. A Multi also has a member on the second server, if there is one.
const (
	Reentrant = "rlock"
	Fair      = "fairlock"
	Multi     = "multilock"
	ReadWrite = "rwlock"
	Semaphore = "semaphore"
	Latch     = "latch"
	Election  = "election"
	Red       = "redlock"
)

const (
	// Permits is the number of permits of each Semaphore.
	Permits = 3
	// Counts is the count with which each run of a Latch begins.
	Counts = 3
)

// primitive has the ways to use the locks of one kind, and the judge of their history.
type primitive struct {
	kind    string
	servers int // minimum number of servers
	// visits returns the ways to use the i-th lock of the kind, with a session for each server.
	visits func(all []*rlock.Session, i int) []visit
	judge  func(ops []Op) Verdict
}

var primitives = []primitive{
	{Reentrant, 1, func(all []*rlock.Session, i int) []visit {
		return []visit{visitMutex(rlock.New(all[0], named(Reentrant, i)))}
	}, judgeMutex},
	{Fair, 1, func(all []*rlock.Session, i int) []visit {
		return []visit{visitMutex(fairlock.New(all[0], named(Fair, i)))}
	}, judgeMutex},
	{Multi, 1, func(all []*rlock.Session, i int) []visit { // some members are locks of other visits, too
		here, there := all[0], all[min(1, len(all)-1)]
		return []visit{visitMutex(multilock.New(rlock.New(there, named(Multi, i)+" there"),
			fairlock.New(here, named(Fair, i)), rlock.New(here, named(Reentrant, i))))}
	}, judgeMutex},
	{ReadWrite, 1, func(all []*rlock.Session, i int) []visit { // two of three visits read
		m := rwlock.New(all[0], named(ReadWrite, i))
		return []visit{visitReader(m), visitReader(m), visitWriter(m)}
	}, func(ops []Op) Verdict { return JudgeReadWrite(Holds(ops)) }},
	{Semaphore, 1, func(all []*rlock.Session, i int) (visits []visit) {
		for n := 1; n <= Permits; n++ {
			visits = append(visits, visitSemaphore(semaphore.New(all[0], named(Semaphore, i), Permits), n))
		}
		return visits
	}, func(ops []Op) Verdict { return JudgeSemaphore(Holds(ops), Permits) }},
	{Latch, 1, func(all []*rlock.Session, i int) []visit {
		return []visit{visitLatch(latch.New(all[0], named(Latch, i), latch.WithLifetime(latchLifetime)))}
	}, JudgeLatch},
	{Election, 1, func(all []*rlock.Session, i int) []visit {
		return []visit{visitElection(election.New(all[0], named(Election, i)))}
	}, judgeMutex},
	{Red, 3, func(all []*rlock.Session, i int) []visit {
		q, err := multilock.NewQuorum(all)
		if err != nil {
			panic(err)
		}
		return []visit{visitMutex(q.New(named(Red, i)))}
	}, judgeMutex},
}

func named(kind string, i int) string { return fmt.Sprint(kind, " ", i) }

// KindOf returns the kind of the lock with this name.
func KindOf(name string) string {
	kind, _, _ := strings.Cut(name, " ")
	return kind
}

// Kinds returns the kinds that need at most this number of servers.
func Kinds(servers int) (kinds []string) {
	for _, p := range primitives {
		if p.servers <= servers {
			kinds = append(kinds, p.kind)
		}
	}
	return kinds
}

func primitiveOf(kind string) (primitive, bool) {
	i := slices.IndexFunc(primitives, func(p primitive) bool { return p.kind == kind })
	if i < 0 {
		return primitive{}, false
	}
	return primitives[i], true
}

func judgeMutex(ops []Op) Verdict { return Judge(Holds(ops)) }

// JudgeAll judges ops of all kinds, each by the judge of its kind. If the name of a lock has no known kind,
// its ops count as Strange.
func JudgeAll(ops []Op) (all Verdict) {
	byKind := map[string][]Op{}
	for _, op := range ops {
		kind := KindOf(op.Lock)
		byKind[kind] = append(byKind[kind], op)
	}
	for kind, ops := range byKind {
		p, ok := primitiveOf(kind)
		if !ok {
			all.Strange += len(ops)
			continue
		}
		v := p.judge(ops)
		all.Overlaps += v.Overlaps
		all.Unfenced += v.Unfenced
		all.Strange += v.Strange
		all.Early += v.Early
		all.Example = cmp.Or(all.Example, v.Example)
	}
	return all
}
