package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// site is where the servers are.
type site struct {
	redis    string   // URL
	majority []string // URLs of independent servers, if a scenario needs them
	etcd     string   // address, if a contender needs it

	version  string // of redis
	embedded bool   // by miniredis: tells what works, not how fast
	origin   string // for the reader

	// overhead is what a delaying proxy adds each way beyond what it was told.
	overhead time.Duration

	closers []func() error
}

const majoritySize = 5

// open starts what url and embedded do not name.
func open(ctx context.Context, redisURL string, embedded bool) (_ *site, err error) {
	s := &site{redis: redisURL, embedded: embedded, origin: "given by --redis"}
	if redisURL == "" {
		if s.redis, err = s.server(ctx); err != nil {
			return nil, err
		}
		s.origin = "started for this run, on loopback, without persistence"
	}
	if embedded {
		s.origin, s.version = "EMBEDDED miniredis in the bench process: no figure says anything of Redis", "7.0.0"
		return s, nil
	}
	if _, err := host(s.redis); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.version, err = serverVersion(ctx, s.redis)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// server starts one more.
func (s *site) server(ctx context.Context) (string, error) {
	if s.embedded {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return "", err
		}
		s.closers = append(s.closers, func() error { m.Close(); return nil })
		return "redis://" + m.Addr(), nil
	}
	own, err := startServer(ctx)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, own.stop)
	return own.url(), nil
}

// furnish starts what else the scenarios and contenders need.
func (s *site) furnish(ctx context.Context, scenarios []scenario, contenders []contender) error {
	if slices.ContainsFunc(scenarios, func(x scenario) bool { return slices.Contains(x.needs, majority) }) {
		for range majoritySize {
			u, err := s.server(ctx)
			if err != nil {
				return err
			}
			s.majority = append(s.majority, u)
		}
	}
	if slices.ContainsFunc(scenarios, func(x scenario) bool { return x.delay > 0 }) {
		if err := s.calibrate(ctx); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(contenders, func(x contender) bool { return x.foreign }) {
		h, err := startEtcd(ctx)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, h.close)
		s.etcd = h.addr
	}
	return nil
}

// calibrate finds the overhead of a delaying proxy: its hop, and late timers.
func (s *site) calibrate(ctx context.Context) error {
	far, proxies, err := through(ctx, setup{Redis: []string{s.redis}}, roleDelay, eachWay.String())
	if err != nil {
		return errors.Join(err, closeAll(proxies))
	}
	us, err := addedTrip(ctx, s.redis, far.Redis[0])
	over := time.Duration(us*float64(time.Microsecond))/2 - eachWay
	s.overhead = min(max(0, over), eachWay/2) // on a busy machine it may be anything
	return errors.Join(err, closeAll(proxies))
}

func (s *site) close() (err error) {
	for _, c := range slices.Backward(s.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// bout pairs them here.
func (s *site) bout(x scenario, c contender, window time.Duration) bout {
	if x.delay > 0 {
		x.delay = max(0, x.delay-s.overhead)
	}
	return bout{x, c, s.setup(x), s.embedded, window}
}

// setup is what clients of a scenario are told.
func (s *site) setup(x scenario) setup {
	to := setup{Redis: []string{s.redis}, Etcd: s.etcd, Lease: x.lease, Rivals: x.goroutines > 1 && !x.ownLocks}
	if slices.Contains(x.needs, majority) {
		to.Redis = s.majority
		if x.servers > 0 {
			to.Redis = s.majority[:x.servers]
		}
	}
	return to
}

func serverVersion(ctx context.Context, url string) (string, error) {
	info, err := infos(ctx, []string{url}, "server")
	if err != nil {
		return "", err
	}
	if v := info[0]["redis_version"]; v != "" {
		return v, nil
	}
	return "", errors.New("the server does not tell its version")
}

// infos asks each server for a section of INFO.
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

// pings make a median.
const pings = 40

// addedTrip is by how much longer a PING takes to one address than to another.
func addedTrip(ctx context.Context, near, far string) (us float64, err error) {
	a, err := roundTrip(ctx, near)
	if err != nil {
		return 0, err
	}
	b, err := roundTrip(ctx, far)
	return b - a, err
}

// roundTrip is how long a PING takes: the median of some.
func roundTrip(ctx context.Context, url string) (us float64, err error) {
	rdb, err := dialRedis(url)
	if err != nil {
		return 0, err
	}
	var trips []float64
	for range pings {
		took, e := timed(func() error { return rdb.Ping(ctx).Err() })
		err = errors.Join(err, e)
		trips = append(trips, micros(took))
	}
	return medianOf(trips), errors.Join(err, rdb.Close())
}
