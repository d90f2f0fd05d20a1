package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// A site has the servers on which the scenarios run.
type site struct {
	redis    string   // URL of the server for scenarios with one server
	majority []string // URLs of independent servers, for scenarios with several servers
	version  string   // version of the server in redis
	origin   string   // words on the page that say who has started the server in redis
}

// open starts the servers that the scenarios need. If redisURL is not empty, scenarios with one server use
// the server at redisURL instead. The servers that open starts end with host.
func open(ctx context.Context, host testing.TB, redisURL string, some []scenario) (*site, error) {
	start := func() string { return "redis://" + testredis.Start(host).Addr }
	s := &site{redis: redisURL, origin: "given by --redis"}
	if redisURL == "" {
		s.redis, s.origin = start(), "started for this run, on loopback, without persistence"
	}
	for _, x := range some {
		for len(s.majority) < x.servers {
			s.majority = append(s.majority, start())
		}
	}
	info, err := infos(ctx, []string{s.redis}, "server")
	if err != nil {
		return nil, err
	}
	s.version = info[0]["redis_version"]
	return s, nil
}

// setup returns the settings for clients of a scenario.
func (s *site) setup(x scenario) setup {
	if x.servers > 0 {
		return setup{s.majority[:x.servers], x.lease}
	}
	return setup{[]string{s.redis}, x.lease}
}

// infos returns the fields in one section of the INFO of each server.
func infos(ctx context.Context, urls []string, section string) (all []map[string]string, err error) {
	for _, u := range urls {
		rdb, err := dialRedis(u)
		if err != nil {
			return nil, err
		}
		text, err := rdb.Info(ctx, section).Result()
		if err := errors.Join(err, rdb.Close()); err != nil {
			return nil, err
		}
		m := map[string]string{}
		for line := range strings.Lines(text) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				m[k] = v
			}
		}
		all = append(all, m)
	}
	return all, nil
}
