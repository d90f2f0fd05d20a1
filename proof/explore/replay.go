package explore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// live is a real server in place of the model's. It needs little time between two ticks of a world. Nothing
// in a world expires within a third of a tick after one, so that the difference has no effect.
type live struct {
	ctx    context.Context
	client *redis.Client
	texts  []string // of scripts
	began  int64    // Redis time
	local  time.Time
	heard  map[string]*redis.PubSub // by channel
	marks  int
	err    error // first error of the server
}

func newLive(ctx context.Context, client *redis.Client, texts []string) *live {
	l := &live{ctx: ctx, client: client, texts: texts, heard: map[string]*redis.PubSub{}}
	l.local = time.Now()
	now, err := client.Time(ctx).Result()
	l.began = now.UnixMicro()
	l.failed(err)
	return l
}

func (l *live) failed(err error) {
	if l.err == nil {
		l.err = err
	}
}

// listen subscribes to exactly these channels.
func (l *live) listen(channels []string) {
	for _, c := range channels {
		if l.heard[c] == nil {
			l.heard[c] = l.client.Subscribe(l.ctx, c)
			_, err := l.heard[c].Receive(l.ctx)
			l.failed(err)
		}
	}
	for c, sub := range l.heard {
		if !slices.Contains(channels, c) {
			l.failed(sub.Close())
			delete(l.heard, c)
			// Wait until the server has processed that.
			for l.err == nil && l.client.PubSubNumSub(l.ctx, c).Val()[c] > 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// run executes a script, and returns the Redis time and the key space from before, and the script's effect.
func (l *live) run(p Packet, keys, argv []string) (now int64, before *keyspace.Space, did keyspace.Effect) {
	before = l.space()
	at, err := l.client.Time(l.ctx).Result()
	l.failed(err)
	args := make([]any, len(argv))
	for i, a := range argv {
		args[i] = a
	}
	reply, err := l.client.Eval(l.ctx, l.texts[p.Script], keys, args...).Text()
	did.Reply, did.Err = reply, err
	did.Published = l.messages()
	did.Space = l.space()
	return at.UnixMicro(), before, did
}

// messages returns the messages that were published since the last call.
func (l *live) messages() (all []keyspace.Message) {
	l.marks++
	mark := fmt.Sprint("mark ", l.marks)
	for c, sub := range l.heard {
		l.failed(l.client.Publish(l.ctx, c, mark).Err())
		for l.err == nil {
			m, err := sub.ReceiveMessage(l.ctx)
			l.failed(err)
			if err != nil || m.Payload == mark {
				break
			}
			all = append(all, keyspace.Message{Channel: c, Text: m.Payload})
		}
	}
	return all
}

// waitUntil waits until the Redis time of a tick, and returns the key space at that time.
func (l *live) waitUntil(now int64) *keyspace.Space {
	time.Sleep(time.Until(l.local.Add(time.Duration(now-l.began)*time.Microsecond + 20*time.Millisecond)))
	return l.space()
}

// space reads all keys.
func (l *live) space() *keyspace.Space {
	client, s := l.client, keyspace.New()
	names, err := client.Keys(l.ctx, "*").Result()
	l.failed(err)
	for _, name := range names {
		expires := client.PExpireTime(l.ctx, name).Val()
		if kind := client.Type(l.ctx, name).Val(); kind == "hash" {
			s.PutHash(name, client.HGetAll(l.ctx, name).Val(), int64(expires/time.Millisecond))
		} else if kind == "zset" {
			scores := map[string]float64{}
			for _, z := range client.ZRangeWithScores(l.ctx, name, 0, -1).Val() {
				scores[z.Member.(string)] = z.Score
			}
			s.PutScores(name, scores, int64(expires/time.Millisecond))
		}
	}
	return s
}

// repeat takes the steps on a real server, and then calm ones until the end. diverged reports that a step
// does not exist, because an earlier step had another effect there.
func (s *System[A]) repeat(l *live, steps []Step) (violation error, diverged bool) {
	s.live = l
	v := s.view(s.start(), &View[A]{})
	v.Now = l.began
	for _, step := range steps {
		names, changes := s.named(v)
		n := slices.Index(names, step)
		if n < 0 {
			return nil, true
		}
		l.listen(v.channels())
		changes[n](v)
		if violation := v.violation(); violation != nil {
			return violation, false
		}
	}
	for range longestCalm {
		l.listen(v.channels())
		if over, violation := v.goOnCalmly(); over || violation != nil {
			return violation, false
		}
	}
	return fmt.Errorf("no end, though nothing goes wrong any more"), false
}

// channels returns the channels that have a subscriber.
func (v *View[A]) channels() (all []string) {
	for channel := range v.sys.listeners {
		if v.listener(channel) >= 0 {
			all = append(all, channel)
		}
	}
	slices.Sort(all)
	return all
}

// Replay takes the steps of a violation on a real server, which is emptied first, with the texts of scripts.
// It returns the violation that they lead to; nil if they lead to none. diverged: they cannot all be taken
// there.
func (w World) Replay(
	ctx context.Context, text func(name string) string, trace []Step, client *redis.Client,
) (violation error, diverged bool, err error) {
	built, err := w.load(text)
	if err != nil {
		return nil, false, err
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return nil, false, err
	}
	var texts []string
	for _, name := range w.scripts {
		texts = append(texts, text(name))
	}
	l := newLive(ctx, client, texts)
	defer l.listen(nil)
	violation, diverged = built.repeat(l, trace)
	return violation, diverged, l.err
}
