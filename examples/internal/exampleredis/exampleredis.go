// Package exampleredis lets the examples run with nothing but Go installed.
package exampleredis

import (
	"flag"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Flag is the command line's --redis.
func Flag() *string {
	return flag.String("redis", "", "URL of a Redis to use, such as redis://localhost:6379 (default: one embedded in this program)")
}

// Start returns the URL of a server: the one given or, where that is empty, one
// in this process that ends with stop.
func Start(url string) (_ string, stop func(), err error) {
	if url != "" {
		return url, func() {}, nil
	}
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	return "redis://" + server.Addr(), server.Close, nil
}

// Connect makes a client for a URL.
func Connect(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}
