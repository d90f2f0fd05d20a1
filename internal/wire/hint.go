package wire

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// hints say what is wrong with a client whose requests are answered with errors that have these words.
var hints = []struct{ words, hint string }{
	{"moved ", "the server is a node of a Cluster, and this client did not go where it says: use redis.NewClusterClient"},
	{"cluster support disabled", "the server is no node of a Cluster: use redis.NewClient"},
	{"unknown command 'evalsha'", "the server runs no scripts; a Sentinel runs none, and knows where the master is: use redis.NewFailoverClient"},
	{"unauthenticated", "the server wants a password, and the client has given none or a wrong one"},
}

// Hint is what a user may have done wrong, in parentheses; "" where the error does not tell.
func Hint(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		if errors.As(err, new(tls.RecordHeaderError)) {
			return " (the server does not speak TLS, and the client does: drop its TLSConfig)"
		}
		return ""
	}
	text := strings.ToLower(strings.ReplaceAll(reply.Error(), "`", "'")) // Redis 6 quotes with backticks
	for _, h := range hints {
		if strings.Contains(text, h.words) {
			return " (" + h.hint + ")"
		}
	}
	return ""
}
