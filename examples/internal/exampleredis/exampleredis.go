// Package exampleredis lets the examples run with nothing but Go installed.
package exampleredis

import (
	"context"
	"flag"
	"log"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Main runs an example on the server that --redis or the variable REDIS_URL names. If neither is set, the
// server is in this process. Main ends the program if the example fails.
func Main(run func(ctx context.Context, url string) error) {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "URL of a Redis to use, such as "+
		"redis://localhost:6379 (default: one embedded in this program)")
	flag.Parse()
	if *url == "" {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		*url = "redis://" + server.Addr()
	}
	if err := run(context.Background(), *url); err != nil {
		log.Fatal(err)
	}
}

// Connect makes a client for a URL.
func Connect(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}
