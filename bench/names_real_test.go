package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// littering leaves keys behind when it is unlocked.
type littering struct {
	*redis.Client
	name string
	keys map[string]time.Duration // what is behind the name in the key, and how long it stays; 0: forever
}

func (l littering) mutex(name string) mutex {
	l.name = name
	return l
}
func (l littering) close() error { return l.Client.Close() }

func (l littering) lock(ctx context.Context) (context.Context, error) { return ctx, nil }

func (l littering) unlock(ctx context.Context) error {
	for end, stays := range l.keys {
		if err := l.Set(ctx, "litter:"+l.name+end, strings.Repeat("x", litter), stays).Err(); err != nil {
			return err
		}
	}
	return nil
}

const litter = 1000 // bytes

func TestWhatNamesLeaveBehindIsCountedAndClearedAway(t *testing.T) {
	t.Parallel()
	at := &site{redis: "redis://" + testredis.Start(t).Addr}
	rdb, err := dialRedis(at.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rdb.Close() }()
	const others = "somebody else's"
	if err := rdb.Set(t.Context(), others, "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := theScenario(t, "names")
	s.count = 2500 // more than what is looked at together
	for name, test := range map[string]struct {
		keys        map[string]time.Duration
		least, most float64 // us
	}{
		"nothing":         {nil, 0, 0},
		"a key":           {map[string]time.Duration{":a": time.Hour}, micros(time.Minute), micros(time.Hour)},
		"two, one longer": {map[string]time.Duration{":a": time.Hour, ":b": 48 * time.Hour}, micros(24 * time.Hour), micros(48 * time.Hour)},
		"one forever":     {map[string]time.Duration{":a": time.Hour, ":b": 0}, always, always},
	} {
		t.Run(name, func(t *testing.T) {
			c := contender{name: "littering", dial: func(to setup) (client, error) {
				rdb, err := dialRedis(to.Redis[0])
				return littering{Client: rdb, keys: test.keys}, err
			}}
			b := at.bout(s, c, briefly)
			got, err := b.run(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			f, keys := got.figures, float64(len(test.keys))
			if f["left_keys_per_name"] != keys {
				t.Errorf("%v keys for a name, not %v", f["left_keys_per_name"], keys)
			}
			if n := f["left_bytes_per_name"]; n < litter*keys || n > 2*litter*keys {
				t.Errorf("%v bytes for a name, of %v values of %d", n, keys, litter)
			}
			life, any := f["left_for_us"]
			if any != (keys > 0) || life < test.least || life > test.most {
				t.Errorf("left for %v us (%v), not %v to %v", life, any, test.least, test.most)
			}
			if left, err := rdb.Keys(t.Context(), "*").Result(); err != nil || len(left) != 1 || left[0] != others {
				t.Errorf("what is left in the end: %d keys, %v", len(left), err)
			}
		})
	}
}
