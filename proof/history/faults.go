package history

import (
	"slices"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// Fault is a kind of failure that a run causes.
type Fault string

const (
	Kill          Fault = "process killed"
	Freeze        Fault = "process frozen"
	Cut           Fault = "connections cut"
	LostReplies   Fault = "replies lost"
	LostRequests  Fault = "requests lost"
	Latency       Fault = "network slow"
	ServerFreeze  Fault = "server frozen"
	ServerRestart Fault = "server restarted" // stopped by SIGKILL, then started
)

// Faults has all faults, in the order in which a report lists them. Elsewhere has the faults of processes and
// of the network, which spare the servers.
var (
	Elsewhere = []Fault{Kill, Freeze, Cut, LostReplies, LostRequests, Latency}
	Faults    = append(slices.Clone(Elsewhere), ServerFreeze, ServerRestart)
)

// heal is the end of a fault that lasts for a while.
type heal struct {
	at time.Time
	do func()
}

// heal ends the faults whose time has come.
func (p *play) heal(now time.Time) {
	p.heals = slices.DeleteFunc(p.heals, func(h heal) bool {
		if h.at.After(now) {
			return false
		}
		h.do()
		return true
	})
}

// disturb causes the next fault. A process is frozen for up to two leases, so that some of its holds expire
// meanwhile and others do not.
func (p *play) disturb() {
	a := p.pick()
	if a == nil {
		return // all processes were killed, and their successors have not started
	}
	if len(p.due) == 0 {
		for _, i := range p.rnd.Perm(len(p.Stage.Faults)) {
			p.due = append(p.due, p.Stage.Faults[i])
		}
	}
	f := p.due[0]
	p.due = p.due[1:]
	p.Record.Faults[f]++
	p.Last = f
	lasts := time.Duration(p.rnd.Int64N(int64(p.Lease) / 2))
	if f == Freeze {
		lasts *= 4
	}
	until := func(do func()) { p.heals = append(p.heals, heal{time.Now().Add(lasts), do}) }
	at := p.rnd.IntN(len(p.proxies))
	proxy := p.proxies[at]
	each := func(action faultproxy.Action) { // each applies an action to every tenth request
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Seq%10 == 0 {
				return action
			}
			return faultproxy.Pass
		})
		until(func() { proxy.OnRequest(nil) })
	}
	switch f {
	case Kill:
		a.killed = time.Now().UnixNano()
		a.Kill()
	case Freeze:
		a.Signal(testredis.StopSignal)
		until(func() { a.Signal(testredis.ContinueSignal) })
	case Cut:
		proxy.CutAll()
	case LostReplies:
		each(faultproxy.CutReply)
	case LostRequests:
		each(faultproxy.DropAndCut)
	case Latency:
		proxy.SetDelay(time.Duration(p.rnd.Int64N(int64(p.Lease / 20))))
		until(func() { proxy.SetDelay(0) })
	case ServerFreeze:
		p.Servers[at].Freeze()
		until(p.Servers[at].Thaw)
	case ServerRestart:
		p.Servers[at].Restart(p.T)
	}
}
