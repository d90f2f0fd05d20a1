package keyspace

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// An outcome is the effect of a script on a server or on a key space, as texts that a test can compare.
type outcome struct {
	reply, published, space string
}

func (o outcome) String() string {
	return fmt.Sprintf("reply %s\npublished %s\n%s", o.reply, o.published, o.space)
}

// listeners has the number of subscribers of each channel, on the server and in the key space.
var listeners = map[string]int{"c:B": 1, "c:C": 2, "c:{k}:B": 1, "c:{k}:C": 2, "c": 1}

func listening(channel string) int { return listeners[channel] }

// A server is a real server that runs scripts as the key space does.
//
// The script gets the time from the test, but keys expire by the server's own clock. So the expiry times of a
// state are stored relative to the present millisecond of the server. The outcome only counts if the script
// ends in the millisecond for which the state was stored. Otherwise the run is repeated.
type server struct {
	client  *redis.Client
	prepare string
	again   int // number of repetitions
}

//go:embed testdata/prepare.lua
var prepareText string

//go:embed testdata/run.lua
var runText string

func newServer(t *testing.T) *server {
	t.Helper()
	probe := testredis.Start(t)
	if found, err := probe.Client(t).Do(t.Context(), "COMMAND", "INFO", "SPUBLISH").Slice(); err != nil ||
		found[0] == nil {
		t.Skip("the key space is a Redis that has sharded pub/sub")
	}
	s := &server{client: testredis.Start(t, "--enable-debug-command", "yes").Client(t)}
	// Scripts still see a key in the millisecond in which it expires. But in this millisecond, Redis 8 may
	// already delete the key in the background.
	if err := s.client.Do(t.Context(), "DEBUG", "SET-ACTIVE-EXPIRE", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for channel, n := range listeners {
		for range n {
			s.listen(t, s.client.Subscribe(t.Context(), channel))
			s.listen(t, s.client.SSubscribe(t.Context(), channel))
		}
	}
	s.prepare = s.load(t, prepareText)
	return s
}

// listen waits until sub has a subscription, and reads its messages until the test ends.
func (s *server) listen(t *testing.T, sub *redis.PubSub) {
	t.Helper()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := sub.Receive(context.Background()); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = sub.Close()
		<-done
	})
}

func (s *server) load(t *testing.T, text string) (digest string) {
	t.Helper()
	digest, err := s.client.ScriptLoad(t.Context(), text).Result()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// shimmed adds code to the text of a script. This code runs the script as the key space does. The script
// begins in the second line.
func shimmed(text string) string {
	return "local function script(redis, KEYS, ARGV)\n" + text + "\nend\n" + runText
}

// stored returns arguments of prepare.lua, which store a state. The expiry times of all keys are later ms
// later than in the state.
func stored(space *Space, now int64) (args []any, later int64) {
	ms := now / 1000
	for _, k := range space.keys {
		if k.expires != 0 && k.expires <= ms {
			later = 2 // a server does not store a key that expires at once
		}
	}
	for _, name := range space.Keys() {
		k, ttl := space.keys[name], ""
		if k.expires != 0 {
			if k.expires < ms-1 {
				continue // has expired, which is the same as deleted
			}
			ttl = strconv.FormatInt(k.expires-ms+later, 10)
		}
		if k.hash != nil {
			args = append(args, name, "hash", ttl, len(k.hash))
			for field, value := range k.hash {
				args = append(args, field, value)
			}
		} else {
			args = append(args, name, "zset", ttl, len(k.scores))
			for member, f := range k.scores {
				args = append(args, strconv.FormatFloat(f, 'g', -1, 64), member)
			}
		}
	}
	return args, later
}

// run stores a state on the server, runs a loaded script, and returns the outcome.
func (s *server) run(t *testing.T, digest string, space *Space, now int64, keys, argv []string) outcome {
	t.Helper()
	prepared, later := stored(space, now)
	args := []any{now / 1e6, now % 1e6, len(keys)}
	for _, a := range slices.Concat(keys, argv) {
		args = append(args, a)
	}
	for {
		pipe := s.client.Pipeline()
		before := pipe.EvalSha(t.Context(), s.prepare, nil, prepared...)
		var after *redis.Cmd
		if later == 0 {
			after = pipe.EvalSha(t.Context(), digest, nil, args...)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatalf("%v: %q", err, prepared)
		}
		begun, err := strconv.ParseInt(before.Val().(string), 10, 64)
		if err == nil && later > 0 {
			s.await(t, begun+later)
			after = s.client.EvalSha(t.Context(), digest, nil, args...)
		}
		if err == nil {
			result, err := after.Slice()
			if err != nil {
				t.Fatalf("%v: %q", err, args)
			}
			if result[5] == strconv.FormatInt(begun+later, 10) {
				return outcome{serverReply(result), serverPublished(result[3].([]any)),
					serverSpace(result[4].([]any))}
			}
		}
		s.again++
	}
}

// await waits until a time in milliseconds by the server's clock.
func (s *server) await(t *testing.T, ms int64) {
	t.Helper()
	for {
		now, err := s.client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if now.UnixMilli() >= ms {
			return
		}
	}
}

func serverReply(result []any) string {
	kind, text := result[1].(string), result[2].(string)
	switch {
	case result[0] == "raised" || kind == "error":
		return failure(text, 1)
	case kind == "number":
		f, _ := strconv.ParseFloat(text, 64)
		return strconv.Quote(strconv.FormatInt(int64(f), 10))
	case kind == "boolean" && text == "true":
		return `"1"`
	case kind == "boolean" || kind == "nil":
		return `""`
	case kind == "string":
		return reply(text)
	}
	return kind
}

var raisedAt = regexp.MustCompile(`^(?:user_)?script:(\d+): `)

// failure returns the text of an error. For an error of Lua itself, the text has only the line, because the
// key space uses other words.
func failure(text string, linesBefore int) string {
	if at := raisedAt.FindStringSubmatch(text); at != nil {
		line, _ := strconv.Atoi(at[1])
		return fmt.Sprintf("error in line %d", line-linesBefore)
	}
	return "error " + reply(text)
}

func serverPublished(all []any) string {
	var b strings.Builder
	for _, m := range all {
		m := m.([]any)
		fmt.Fprintf(&b, "%s %q %q; ", m[0], m[1], m[2])
	}
	return b.String()
}

func serverSpace(all []any) string {
	var lines []string
	for _, k := range all {
		k := k.([]any)
		name, kind, ttl, flat := k[0].(string), k[1].(string), k[2].(int64), k[3].([]any)
		var pairs []string
		for i := 0; i < len(flat); i += 2 {
			a, b := flat[i].(string), flat[i+1].(string)
			if kind == "zset" {
				f, _ := strconv.ParseFloat(b, 64)
				b = strconv.FormatFloat(f, 'g', -1, 64)
			}
			pairs = append(pairs, fmt.Sprintf("%q=%q", a, b))
		}
		if kind == "hash" {
			slices.Sort(pairs) // fields have no order, but members have one
		}
		lines = append(lines, line(name, kind, ttl, pairs))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func line(name, kind string, ttl int64, pairs []string) string {
	return fmt.Sprintf("%q %s %d: %s", name, kind, ttl, strings.Join(pairs, " "))
}

// outcomeOf returns the outcome of a script that has run on a key space.
func outcomeOf(e Effect, now int64) outcome {
	o := outcome{reply: reply(e.Reply)}
	if e.Err != nil {
		o.reply = failure(e.Err.Error(), 0)
	}
	for _, m := range e.Published {
		o.published += fmt.Sprintf("%s %q %q; ",
			map[bool]string{true: "SPUBLISH", false: "PUBLISH"}[m.Sharded], m.Channel, m.Text)
	}
	space := e.Space.Clone()
	space.Purge(now)
	var lines []string
	for _, name := range space.Keys() {
		k, kind, ttl := space.keys[name], "hash", int64(-1)
		if k.expires != 0 {
			ttl = int64(float64(k.expires - now/1000)) // rounded as in Lua
		}
		var pairs []string
		for field, value := range k.hash {
			pairs = append(pairs, fmt.Sprintf("%q=%q", field, value))
		}
		slices.Sort(pairs)
		if k.scores != nil {
			kind = "zset"
			for _, m := range k.members() {
				if math.IsNaN(k.scores[m]) {
					panic("a score that is no number")
				}
				pairs = append(pairs, fmt.Sprintf("%q=%q", m, strconv.FormatFloat(k.scores[m], 'g', -1, 64)))
			}
		}
		lines = append(lines, line(name, kind, ttl, pairs))
	}
	slices.Sort(lines)
	o.space = strings.Join(lines, "\n")
	return o
}

// wording makes errors of Redis and Valkey the same. Valkey has left the word "Redis" out of some errors.
var wording = strings.NewReplacer("calling Redis command", "calling command",
	"Lua redis lib command arguments", "Command arguments", "this redis lib call", "this call")

// reply quotes a reply. It sorts the members of JSON objects, because they have a random order in Lua.
func reply(text string) string {
	if at := strings.IndexByte(text, '{'); at >= 0 {
		var v any
		d := json.NewDecoder(strings.NewReader(text[at:]))
		d.UseNumber()
		if d.Decode(&v) == nil {
			sorted, _ := json.Marshal(v)
			text = text[:at] + string(sorted)
		}
	}
	return strconv.Quote(wording.Replace(text))
}
