package main

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// rightRequests has a request for each right that every user of locks needs (docs/operations.md), except for
// +subscribe and +unsubscribe. The ACL rule of the right is the key of the map. KEY and CHANNEL are replaced
// by names that begin with the prefix.
//
// No request changes anything. KEY does not exist, and CHANNEL has no subscriber. Requests that would write
// have arguments that Redis refuses after it has checked the rights.
var rightRequests = map[string]string{
	"+eval": "EVAL return 0", "+evalsha": "EVALSHA 0123456789012345678901234567890123456789 0",
	"+ping": "PING", "+time": "TIME", "+hget": "HGET KEY f", "+hgetall": "HGETALL KEY",
	"+hmget": "HMGET KEY f", "+hset": "HSET KEY f v f", "+hdel": "HDEL KEY f", "+del": "DEL KEY",
	"+pexpire": "PEXPIRE KEY x", "+pttl": "PTTL KEY", "+publish": "PUBLISH CHANNEL x",
	"+zadd": "ZADD KEY x m", "+zrem": "ZREM KEY m", "+zscore": "ZSCORE KEY m", "+zrange": "ZRANGE KEY 0 0",
	"+pubsub|numsub": "PUBSUB NUMSUB",
}

// missingRights returns the ACL rules that locks with the prefix need, and that the user lacks on at least
// one master. It tries single commands, because in the error of a script, Redis 7.0 does not name the
// command. If no rule is missing, missingRights returns nil.
func (o *operator) missingRights(ctx context.Context) (rules []string) {
	if o.redisson { // the rules are for keys with the prefix, which these locks do not have
		return nil
	}
	name := "lockline-doctor-" + rand.Text()
	names := strings.NewReplacer("KEY", o.prefix+":r:{"+name+"}", "CHANNEL", o.prefix+":s:"+name)
	var mu sync.Mutex // guards rules
	lacks := func(rule string, err error) {
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			return
		}
		text := err.Error()
		switch {
		case strings.Contains(text, "keys used as arguments"), strings.Contains(text, "access a key"):
			rule = "~" + o.prefix + ":*"
		case strings.Contains(text, "channel"):
			rule = "&" + o.prefix + ":*"
		}
		mu.Lock()
		defer mu.Unlock()
		rules = append(rules, rule)
	}
	_ = eachMaster(ctx, o.rdb, func(ctx context.Context, master *redis.Client) error {
		for rule, request := range rightRequests {
			lacks(rule, master.Do(ctx, anys(strings.Fields(names.Replace(request)))...).Err())
		}
		sub := master.Subscribe(ctx)
		defer sub.Close()
		channel := names.Replace("CHANNEL")
		for _, step := range []struct {
			rule string
			send func(context.Context, ...string) error
		}{{"+subscribe", sub.Subscribe}, {"+unsubscribe", sub.Unsubscribe}} {
			err := step.send(ctx, channel)
			if err == nil {
				_, err = sub.Receive(ctx)
			}
			lacks(step.rule, err)
		}
		return nil
	})
	slices.Sort(rules)
	return slices.Compact(rules)
}

func anys(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}
