package rlock_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestTheCommonCaseIsAsTheOthersOnARealServer(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		commonCaseIsAsTheOthers(t, testlock.Shared(t), shared)
	}
}

// If the server of the lock has no subscription of a session, each reply to this session has the flag D.
func TestAnAnswerSaysWhetherTheServerKnowsThatTheSessionListens(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	sharded := rdb.Do(bg, "PUBSUB", "SHARDNUMSUB").Err() == nil // Redis 7
	acquire := redis.NewScript(script.Text("lock/acquire"))
	for told, subscribe := range map[string]func(string) *redis.PubSub{
		"1": func(channel string) *redis.PubSub { return rdb.Subscribe(bg, channel) },
		"2": func(channel string) *redis.PubSub { return rdb.SSubscribe(bg, channel) },
	} {
		p := testlock.Prefix(rdb)
		lock, channels := p+":r:{"+told+"}", p+":s:"
		keys := []string{lock, lock + ":q", lock + ":w"}
		deaf := func(attempt string) bool {
			t.Helper()
			reply, err := acquire.Run(bg, rdb, keys, attempt, 1, int64(1)<<52, 30000, "about", 60000, 10000,
				channels, "nonce", told).Text()
			testlock.Must(t, err)
			return strings.Contains(strings.Fields(reply)[0], "D")
		}
		deaf("holder:1")
		wantDeaf := told == "1" || sharded // a server without sharded pub/sub cannot know it
		if deaf("s:1") != wantDeaf {
			t.Errorf("told by %s: nobody listens, and the answer does not say so", told)
		}
		if told == "2" && !sharded {
			continue
		}
		channel := channels + "s"
		if told == "2" {
			channel = channels + strings.TrimPrefix(lock, p+":") + ":s"
		}
		listens := subscribe(channel)
		_, err := listens.Receive(bg)
		testlock.Must(t, err)
		if deaf("s:1") {
			t.Errorf("told by %s: it listens, and the answer denies it", told)
		}
		testlock.Must(t, listens.Close())
		testlock.Eventually(t, "the answer says so again", func() bool { return deaf("s:1") })
	}
}

// A session that keeps an idle lock is notified by a message that another session wants the lock. The message
// has only the owner field.
func TestTheKeeperOfAnIdleLockIsToldThatItIsWanted(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	sharded := rdb.Do(bg, "PUBSUB", "SHARDNUMSUB").Err() == nil // Redis 7
	for _, told := range []string{"1", "2"} {
		if told == "2" && !sharded {
			continue
		}
		p := testlock.Prefix(rdb)
		name := "kept" + told
		lock, subscribe, channel := p+":r:{"+name+"}", rdb.Subscribe, p+":s:keeper"
		if told == "2" {
			subscribe, channel = rdb.SSubscribe, p+":s:r:{"+name+"}:keeper"
		}
		listens := subscribe(bg, channel)
		_, err := listens.Receive(bg)
		testlock.Must(t, err)
		ask := func(attempt string) string {
			t.Helper()
			reply, err := redis.NewScript(script.Text("lock/acquire")).Run(bg, rdb,
				[]string{lock, lock + ":q", lock + ":w"}, attempt, 1, int64(1)<<52, 30000, "about", 60000,
				10000, p+":s:", "nonce", told, 0).Text()
			testlock.Must(t, err)
			return reply
		}
		if got := ask("keeper:1"); !strings.HasPrefix(got, "GK") {
			t.Fatalf("told by %s: it may not keep the lock: %s", told, got)
		}
		ask("other:1")
		message, err := listens.ReceiveMessage(testlock.Bounded(t))
		testlock.Must(t, err)
		if message.Payload != "keeper:1" {
			t.Errorf("told by %s: the message is %q", told, message.Payload)
		}
		testlock.Must(t, listens.Close())
	}
}
