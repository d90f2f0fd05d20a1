package wire

import (
	"strings"
	"testing"
)

// redisError is an error that a server answers with.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"MOVED 866 127.0.0.1:7001":                                              "redis.NewClusterClient",
		"ERR This instance has cluster support disabled":                        "redis.NewClient",
		"ERR unknown command 'EVALSHA', with args beginning with: 'x'":          "Sentinel",
		"ERR unknown command `evalsha`, with args beginning with: `x`":          "Sentinel",
		"ERR Protocol error: unauthenticated multibulk length":                  "password",
		"NOPERM this user has no permissions to run the 'publish' command":      "",
		"dial tcp 127.0.0.1:6379: connect: connection redisError":               "",
		"LOADING Redis is loading the dataset in memory":                        "",
		"WRONGTYPE Operation against a key holding the wrong kind of value":     "",
		"ERR unknown command 'SPUBLISH', with args beginning with: 'x' 'moved'": "",
	} {
		if got := Hint(redisError(text)); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q", text, got)
		}
	}
}
