package main

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

// quiet keeps go-redis's own remarks about connections off a stderr that
// belongs to somebody's command. What they lead to is reported as an error.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// The error of a parser may quote the URL, and that may hold a password.
var errURL = errors.New("--redis is not a Redis URL such as redis://user:password@host:6379/0")

const urlUsage = "`URL` of the Redis server; ?master_name=NAME names Sentinels, ?addr=HOST:PORT further nodes of a Cluster"

func redisFlag() cli.Flag {
	return &cli.StringFlag{Name: "redis", Value: "redis://127.0.0.1:6379/0", Sources: cli.EnvVars("LOCKLINE_REDIS"), Usage: urlUsage}
}

func prefixFlag() cli.Flag {
	return &cli.StringFlag{Name: "prefix", Value: "lockline", Usage: "what all keys begin with; as in the programs that use the locks"}
}

// openRedis connects to one server.
func openRedis(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errURL
	}
	redis.SetLogger(quiet{})
	return redis.NewClient(options), nil
}

// openAny connects to what the URL names in go-redis's forms: a server, the master
// that Sentinels know under ?master_name=, or a Cluster with ?addr=. No I/O.
func openAny(rawURL string) (redis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errURL
	}
	redis.SetLogger(quiet{})
	switch {
	case u.Query().Has("master_name"):
		options, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, errURL
		}
		return redis.NewFailoverClient(options), nil
	case u.Query().Has("addr"):
		options, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, errURL
		}
		return redis.NewClusterClient(options), nil
	}
	return openRedis(rawURL)
}

// wholeCluster connects to the whole Cluster where rdb is one node of it, and closes
// rdb then. If rdb does not say, it stays: its next request tells why.
func wholeCluster(ctx context.Context, rdb redis.UniversalClient, rawURL string) redis.UniversalClient {
	if _, single := rdb.(*redis.Client); !single || !strings.Contains(rdb.Info(ctx, "cluster").Val(), "cluster_enabled:1") {
		return rdb
	}
	options, err := redis.ParseClusterURL(rawURL)
	if err != nil {
		return rdb
	}
	_ = rdb.Close()
	return redis.NewClusterClient(options)
}
