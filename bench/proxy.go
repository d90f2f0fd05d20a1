package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// host is the address in a Redis URL.
func host(redisURL string) (string, error) {
	u, err := url.Parse(redisURL)
	if err != nil {
		return "", err
	}
	if u.Scheme != "redis" {
		return "", fmt.Errorf("%s: only redis:// can be measured, because the proxies do not speak TLS", redisURL)
	}
	if u.Port() == "" {
		return u.Hostname() + ":6379", nil
	}
	return u.Host, nil
}

// readdress is the same URL for another address.
func readdress(redisURL, addr string) string {
	u, _ := url.Parse(redisURL) // host has parsed it
	u.Host = addr
	return u.String()
}

// through starts a helper before each server of to, and returns how to reach them through those.
func through(ctx context.Context, to setup, role string, args ...string) (_ setup, helpers []*helper, err error) {
	via := to
	via.Redis = nil
	start := func(addr string) (string, error) {
		h, err := startHelper(ctx, role, append([]string{addr}, args...)...)
		if err != nil {
			return "", err
		}
		helpers = append(helpers, h)
		return h.addr, nil
	}
	for _, u := range to.Redis {
		addr, err := host(u)
		if err == nil {
			addr, err = start(addr)
		}
		if err != nil {
			return to, helpers, err
		}
		via.Redis = append(via.Redis, readdress(u, addr))
	}
	if to.Etcd != "" && role == roleDelay {
		via.Etcd, err = start(to.Etcd)
	}
	return via, helpers, err
}

func closeAll(helpers []*helper) (err error) {
	for _, h := range helpers {
		err = errors.Join(err, h.close())
	}
	return err
}
