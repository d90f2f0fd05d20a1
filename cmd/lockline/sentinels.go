package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelTimeout bounds each request to a Sentinel.
const sentinelTimeout = 2 * time.Second

// A sentinelView is the reply of one Sentinel about a master.
type sentinelView struct {
	addr   string
	id     string              // "" if it is not known
	err    error               // error of SENTINEL MASTER; then only addr is known
	master map[string]string   // fields of SENTINEL MASTER
	others []map[string]string // fields of the other Sentinels
	quorum error               // error of SENTINEL CKQUORUM
}

// checkSentinels looks at the Sentinels of the URL, and at further Sentinels that the first ones know. It
// also returns the address of the master, or "" if they do not agree on a master. It returns nothing if the
// URL names no Sentinels.
func (t target) checkSentinels(ctx context.Context, lease time.Duration) (found []finding, master string) {
	options, err := redis.ParseFailoverURL(t.URL)
	if err != nil || options.MasterName == "" {
		return nil, ""
	}
	options.Dialer, err = t.secure(options.TLSConfig, &options.DialerRetries, sentinelTimeout)
	if err != nil {
		return nil, ""
	}
	views := viewsOf(ctx, options, options.SentinelAddrs)
	var more []string
	for _, v := range views {
		for _, other := range v.others {
			addr := net.JoinHostPort(other["ip"], other["port"])
			if !slices.Contains(slices.Concat(options.SentinelAddrs, more), addr) && !named(views, other) {
				more = append(more, addr)
			}
		}
	}
	views = append(views, viewsOf(ctx, options, more)...)
	return judgeSentinels(options.MasterName, views, lease), masterOfAll(views)
}

// masterOfAll returns the address of the master if all Sentinels that have answered name the same address.
// Otherwise it returns "".
func masterOfAll(views []sentinelView) (master string) {
	for _, v := range views {
		if v.err != nil {
			continue
		}
		addr := net.JoinHostPort(v.master["ip"], v.master["port"])
		if master != "" && master != addr {
			return ""
		}
		master = addr
	}
	return master
}

// named reports whether views already has the Sentinel with the fields other, perhaps with another address.
func named(views []sentinelView, other map[string]string) bool {
	return slices.ContainsFunc(views, func(v sentinelView) bool {
		return v.id != "" && v.id == other["runid"]
	})
}

// viewsOf sends requests to the Sentinels at these addresses, to all at the same time, and returns their
// replies.
func viewsOf(ctx context.Context, options *redis.FailoverOptions, addrs []string) []sentinelView {
	views := make([]sentinelView, len(addrs))
	var asking sync.WaitGroup
	for i, addr := range addrs {
		asking.Go(func() {
			client := redis.NewSentinelClient(&redis.Options{Addr: addr, Username: options.SentinelUsername,
				Password: options.SentinelPassword, TLSConfig: options.TLSConfig, Dialer: options.Dialer,
				MaxRetries: -1, DialerRetries: 1, DialTimeout: sentinelTimeout, ReadTimeout: sentinelTimeout})
			defer client.Close()
			v := sentinelView{addr: addr}
			if v.master, v.err = client.Master(ctx, options.MasterName).Result(); v.err == nil {
				id := redis.NewStringCmd(ctx, "sentinel", "myid")
				_ = client.Process(ctx, id)
				v.id = id.Val()
				v.others, _ = client.Sentinels(ctx, options.MasterName).Result()
				v.quorum = client.CkQuorum(ctx, options.MasterName).Err()
			}
			views[i] = v
		})
	}
	asking.Wait()
	return views
}

const withoutFailover = "if the master fails now, no lock can be taken until the master is back"

// judgeSentinels returns the findings about each Sentinel, and about all of them together.
func judgeSentinels(name string, views []sentinelView, lease time.Duration) (findings []finding) {
	all := fmt.Sprintf("Sentinels of %q", name)
	add := func(server, check string, says judgment) {
		findings = append(findings, finding{Server: server, Check: check, judgment: says})
	}
	number := func(v sentinelView, field string) int {
		n, _ := strconv.Atoi(v.master[field])
		return n
	}
	known, answered, denied, quorum := 0, 0, 0, 0
	opinions := map[string]bool{}
	slowest := time.Duration(0)
	var stuck error
	for _, v := range views {
		server := "Sentinel " + v.addr
		switch {
		case v.err != nil && strings.Contains(v.err.Error(), "NOPERM"):
			denied++
			add(server, "reach", judgment{unknown, "this user may not ask for SENTINEL MASTER",
				"give it +sentinel|master, +sentinel|ckquorum and +sentinel|myid there"})
			continue
		case v.err != nil:
			add(server, "reach", judgment{warning, say(v.err), "check that this Sentinel runs, and is not " +
				"frozen: a failover needs most Sentinels, and programs that start may wait for this one"})
			continue
		}
		answered++
		known = max(known, number(v, "num-other-sentinels")+1)
		quorum = max(quorum, number(v, "quorum"))
		after := time.Duration(number(v, "down-after-milliseconds")) * time.Millisecond
		slowest = max(slowest, after)
		opinion := fmt.Sprintf("master %s, quorum %d, down-after-milliseconds %d",
			net.JoinHostPort(v.master["ip"], v.master["port"]), number(v, "quorum"), after.Milliseconds())
		opinions[opinion] = true
		if v.quorum != nil && !strings.Contains(v.quorum.Error(), "NOPERM") {
			stuck = cmp.Or(stuck, v.quorum)
		}
		add(server, "reach", judgment{fine, opinion, ""})
	}
	if answered == 0 {
		return findings
	}
	needed := max(known/2+1, quorum)
	votes := fmt.Sprintf("%d of %d answer, %d are needed for a failover", answered, known, needed)
	switch {
	case answered+denied < needed:
		add(all, "quorum", judgment{failure, votes,
			"bring Sentinels back, or correct the quorum: " + withoutFailover})
	case stuck != nil:
		add(all, "quorum", judgment{failure, stuck.Error(),
			"see the connections between Sentinels: " + withoutFailover})
	case known < 3:
		add(all, "quorum", judgment{warning, votes,
			"have three Sentinels, each on its own machine: now the loss of one prevents a failover"})
	case answered+denied < known:
		add(all, "quorum", judgment{warning, votes, "bring the other Sentinels back, before one more fails"})
	default:
		add(all, "quorum", judgment{fine, votes, ""})
	}
	if len(opinions) > 1 {
		var texts []string
		for opinion := range opinions {
			texts = append(texts, opinion)
		}
		slices.Sort(texts)
		add(all, "agreement", judgment{warning, "the Sentinels differ: " + strings.Join(texts, "; "),
			"give all the same settings (SENTINEL SET), and look again: if the masters differ, " +
				"a failover is in progress, or a Sentinel is cut off"})
	}
	add(all, "down-after", judgeOutage("down-after-milliseconds", slowest, lease,
		"set down-after-milliseconds 5000 at each Sentinel"))
	return findings
}

// judgeOutage compares timeout, after which a master counts as dead, with the shortest rest that a lease can
// have when renewals begin to fail.
func judgeOutage(setting string, timeout, lease time.Duration, do string) judgment {
	left := lease / 3 * 2
	found := fmt.Sprintf("%s %d, and holders have %v of a lease of %v left at least", setting,
		timeout.Milliseconds(), left, lease)
	if timeout >= left {
		return judgment{warning, found, do + ": otherwise holders lose locks before the failover begins"}
	}
	return judgment{fine, found, ""}
}
