package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// quiet keeps go-redis's own remarks about connections off a stderr that
// belongs to somebody's command. What they lead to is reported as an error.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func openRedis(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		// The error may quote the URL, and that may hold a password.
		return nil, fmt.Errorf("--redis is not a Redis URL such as redis://user:password@host:6379/0")
	}
	redis.SetLogger(quiet{})
	return redis.NewClient(options), nil
}
