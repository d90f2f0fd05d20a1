package testlock

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// Rights has the ACL rules in docs/operations.md. Each field has the rules of one code block.
type Rights struct{ Server, Cluster, Sharded, Redisson, Replicas, Operator, Sentinel []string }

// Operations returns the text of docs/operations.md. An error stops the test.
func Operations(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile("../../docs/operations.md")
	}
	Must(t, err)
	return string(text)
}

// DocumentedRights returns the rules in docs/operations.md. It lets a shell split each command into words,
// because operators paste the commands into a shell. An error stops the test.
func DocumentedRights(t testing.TB) (r Rights) {
	t.Helper()
	blocks := []*[]string{&r.Server, &r.Cluster, &r.Sharded, &r.Redisson, &r.Replicas,
		&r.Operator, &r.Sentinel}
	found := 0
	for _, block := range strings.Split(Operations(t), "```") {
		command := strings.TrimSpace(block)
		if !strings.HasPrefix(command, "redis-cli ") || !strings.Contains(command, "ACL SETUSER") {
			continue
		}
		if found == len(blocks) {
			t.Fatalf("more than %d blocks of rules", found)
		}
		words, err := exec.Command("sh", "-ec", `printf '%s\n' `+command).Output()
		Must(t, err)
		_, rules, _ := strings.Cut(string(words), "\nSETUSER\n")
		*blocks[found] = strings.Fields(rules)[1:] // the first word is the user's name
		found++
	}
	if found != len(blocks) {
		t.Fatalf("%d blocks of rules, want %d", found, len(blocks))
	}
	return r
}

// DocumentedUser returns a client of a user with the rights that docs/operations.md lists for a single
// server. An error stops the test.
func DocumentedUser(t testing.TB, server *testredis.Server) *redis.Client {
	t.Helper()
	return User(t, server, "lockline", anys(DocumentedRights(t).Server)...)
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}

// NothingRefused fails the test if an ACL rule has refused a command at the server of admin. CLIENT commands
// do not count, because go-redis does not need them. An error of admin stops the test.
func NothingRefused(t testing.TB, admin *redis.Client) {
	t.Helper()
	entries, err := admin.ACLLog(bg, 100).Result()
	Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			t.Errorf("refused: %s", e.Object)
		}
	}
}
