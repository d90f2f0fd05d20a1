package script_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestAReplySaysWhetherItsUserMayBeToldByShardedPubSub(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	err := admin.SPublish(t.Context(), "nobody", "").Err() // also without a Cluster
	capable := err == nil || !strings.Contains(err.Error(), "unknown command")
	for name, c := range map[string]struct {
		rules    string
		possible bool
	}{
		"all rights":                 {"allchannels +@all", true},
		"the prefix' channels alone": {"resetchannels &p:* +@all", true},
		"other channels":             {"resetchannels &q:* +@all", false},
		"no SSUBSCRIBE":              {"allchannels +@all -ssubscribe", false},
		"no SPUBLISH":                {"allchannels +@all -spublish", false},
	} {
		if !capable {
			for _, newer := range []string{" -ssubscribe", " -spublish"} { // unknown to older servers
				c.rules, c.possible = strings.TrimSuffix(c.rules, newer), false
			}
		}
		args := []any{"ACL", "SETUSER", "user", "reset", "on", ">secret", "allkeys"}
		for rule := range strings.FieldsSeq(c.rules) {
			args = append(args, rule)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		user := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "user", "secret" })
		for kind, endings := range map[string][]string{
			"r": {":q", ":w"}, "p": {":q", ":w", ":h"},
		} {
			run, argv := "lock/acquire", []any(nil)
			key := "p:" + kind + ":{x}"
			keys := []string{key}
			for _, end := range endings {
				keys = append(keys, key+end)
			}
			if kind == "p" {
				argv = []any{"", 1, ""}
			}
			ask := func(rdb *redis.Client, owner string, liveness int, told string) string {
				late := time.Now().Add(time.Hour).UnixMicro()
				all := append([]any{owner, 1, late, 60000, "1@host", 60000, liveness, "p:s:", "nonce", told},
					argv...)
				reply, err := rdb.Eval(t.Context(), script.Text(run), keys, all...).Text()
				if err != nil {
					t.Fatalf("%s, %s: %v", name, run, err)
				}
				status, _, _ := strings.Cut(reply, " ")
				return status
			}
			if got := ask(admin, "a:1", 0, "0"); got != "G" {
				t.Fatalf("%s: %s", run, got)
			}
			for told, want := range map[string]bool{"0": c.possible, "1": false, "2": c.possible} {
				if got := ask(user, fmt.Sprint("b:", told), 60000, told); got[:1] != "Q" ||
					strings.Contains(got, "P") != want {
					t.Errorf("%s, %s, told by %s: %s", name, run, told, got)
				}
			}
			if err := admin.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if log := admin.Do(t.Context(), "ACL", "LOG").Val(); capable && fmt.Sprint(log) != "[]" {
			t.Errorf("%s: the ACL log has %v", name, log)
		}
	}
}
