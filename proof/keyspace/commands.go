package keyspace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Message is a published message.
type Message struct {
	Channel, Text string
	Sharded       bool // published by SPUBLISH
}

// Env has the state of the server except for its keys.
type Env struct {
	Now       int64                               // Redis time in microseconds
	Listening func(channel string) int            // number of subscribers of a channel; nil: always 0
	Replica   bool                                // the server is a replica, which refuses to write
	OnCall    func(command string, args []string) // called before each command of the script, unless nil
}

func (e *Env) listening(channel string) int {
	if e.Listening == nil {
		return 0
	}
	return e.Listening(channel)
}

// execution is a run of a script.
type execution struct {
	space     *Space
	env       Env
	published []Message
}

// The reply of a command is an int64, a string, a []any, nil if there is no value, or an error. A script can
// catch these errors.
var (
	errType      = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errCount     = errors.New("ERR Wrong number of args calling Redis command from script")
	errNoCommand = errors.New("ERR Please specify at least one argument for this redis lib call")
	errArgType   = errors.New("ERR Lua redis lib command arguments must be strings or integers")
	errSyntax    = errors.New("ERR syntax error")
	errInteger   = errors.New("ERR value is not an integer or out of range")
	errFloat     = errors.New("ERR value is not a valid float")
	errUnknown   = errors.New("ERR the key space does not know this option")
	errReadOnly  = errors.New("READONLY You can't write against a read only replica")
)

// unbounded means that a command may have any number of arguments.
const unbounded = math.MaxInt

// command is a Redis command that the scripts use. Any other command fails, because only these commands were
// compared with a real server.
type command struct {
	least, most int // bounds of the number of arguments
	run         func(x *execution, args []string) any
}

var commands = map[string]command{
	"TIME": {0, 0, func(x *execution, _ []string) any {
		return []any{strconv.FormatInt(x.env.Now/1e6, 10), strconv.FormatInt(x.env.Now%1e6, 10)}
	}},
	"DEL":           {1, unbounded, (*execution).del},
	"PTTL":          {1, 1, (*execution).pttl},
	"PEXPIRE":       {2, unbounded, (*execution).pexpire},
	"HGET":          {2, 2, func(x *execution, args []string) any { return first(x.hmget(args)) }},
	"HMGET":         {2, unbounded, (*execution).hmget},
	"HGETALL":       {1, 1, (*execution).hgetall},
	"HLEN":          {1, 1, (*execution).hlen},
	"HSET":          {3, unbounded, (*execution).hset},
	"HDEL":          {2, unbounded, (*execution).hdel},
	"ZADD":          {3, unbounded, (*execution).zadd},
	"ZREM":          {2, unbounded, (*execution).zrem},
	"ZSCORE":        {2, 2, (*execution).zscore},
	"ZRANGE":        {3, unbounded, (*execution).zrange},
	"ZRANGEBYSCORE": {3, unbounded, (*execution).zrangebyscore},
	"PUBLISH":       {2, 2, func(x *execution, args []string) any { return x.publish(args, false) }},
	"SPUBLISH":      {2, 2, func(x *execution, args []string) any { return x.publish(args, true) }},
	"PUBSUB":        {1, unbounded, (*execution).pubsub},
}

func known(name string) bool {
	_, ok := commands[strings.ToUpper(name)]
	return ok || strings.EqualFold(name, "SSUBSCRIBE")
}

func (x *execution) call(name string, args []string) any {
	c, ok := commands[strings.ToUpper(name)]
	if !ok {
		return fmt.Errorf("ERR the key space has no %s", name)
	}
	if len(args) < c.least || len(args) > c.most {
		return errCount
	}
	if x.env.OnCall != nil {
		x.env.OnCall(name, args)
	}
	if x.env.Replica && slices.Contains(writing, strings.ToUpper(name)) {
		return errReadOnly
	}
	return c.run(x, args)
}

// writing has the commands that a replica refuses.
var writing = []string{"DEL", "PEXPIRE", "HSET", "HDEL", "ZADD", "ZREM"}

// integer parses an integer as Redis does. It refuses forms such as +1 and 01.
func integer(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s {
		return 0, errInteger
	}
	return n, nil
}

// read returns a key for reading, or nil if there is no such key.
func (x *execution) read(name string) *key {
	k := x.space.keys[name]
	if k != nil && k.expired(x.env.Now) {
		delete(x.space.keys, name)
		return nil
	}
	return k
}

// write returns a key for changes, or nil if there is no such key. If another Space shares the key, write
// makes a copy of the key first.
func (x *execution) write(name string) *key {
	k := x.read(name)
	if k == nil || !k.shared {
		return k
	}
	own := &key{expires: k.expires}
	if k.hash != nil {
		own.hash = make(map[string]string, len(k.hash)+1)
		for f, v := range k.hash {
			own.hash[f] = v
		}
	} else {
		own.scores = make(map[string]float64, len(k.scores)+1)
		for m, f := range k.scores {
			own.scores[m] = f
		}
	}
	x.space.keys[name] = own
	return own
}

// drop deletes a key if it is empty.
func (x *execution) drop(name string, k *key) {
	if k.size() == 0 {
		delete(x.space.keys, name)
	}
}

func first(reply any) any {
	if list, ok := reply.([]any); ok {
		return list[0]
	}
	return reply
}

func (x *execution) del(args []string) any {
	n := int64(0)
	for _, name := range args {
		if x.read(name) != nil {
			n++
			delete(x.space.keys, name)
		}
	}
	return n
}

func (x *execution) pttl(args []string) any {
	switch k := x.read(args[0]); {
	case k == nil:
		return int64(-2)
	case k.expires == 0:
		return int64(-1)
	default:
		return k.expires - x.env.Now/1000
	}
}

func (x *execution) pexpire(args []string) any {
	if len(args) > 2 {
		return errUnknown
	}
	ms, err := integer(args[1])
	if err != nil {
		return err
	}
	now := x.env.Now / 1000
	if ms > math.MaxInt64-now {
		return errors.New("ERR invalid expire time in 'pexpire' command")
	}
	k := x.write(args[0])
	if k == nil {
		return int64(0)
	}
	if k.expires = now + ms; ms <= 0 {
		delete(x.space.keys, args[0])
	}
	return int64(1)
}

func (x *execution) hmget(args []string) any {
	k := x.read(args[0])
	if k != nil && k.hash == nil {
		return errType
	}
	reply := make([]any, len(args)-1)
	for i, field := range args[1:] {
		if k == nil {
			continue
		}
		if value, ok := k.hash[field]; ok {
			reply[i] = value
		}
	}
	return reply
}

// hgetall sorts the fields, so that a script's result is deterministic. Redis returns them in any order.
func (x *execution) hgetall(args []string) any {
	k := x.read(args[0])
	if k == nil {
		return []any{}
	}
	if k.hash == nil {
		return errType
	}
	reply := make([]any, 0, 2*len(k.hash))
	fields := make([]string, 0, len(k.hash))
	for f := range k.hash {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	for _, f := range fields {
		reply = append(reply, f, k.hash[f])
	}
	return reply
}

func (x *execution) hlen(args []string) any {
	k := x.read(args[0])
	switch {
	case k == nil:
		return int64(0)
	case k.hash == nil:
		return errType
	}
	return int64(len(k.hash))
}

// hash returns a hash for changes. If there is no such key, hash makes an empty hash.
func (x *execution) hash(name string) (*key, any) {
	k := x.write(name)
	if k == nil {
		k = &key{hash: map[string]string{}}
		x.space.keys[name] = k
	}
	if k.hash == nil {
		return nil, errType
	}
	return k, nil
}

func (x *execution) hset(args []string) any {
	if len(args)%2 == 0 {
		return errors.New("ERR wrong number of arguments for 'hset' command")
	}
	k, err := x.hash(args[0])
	if err != nil {
		return err
	}
	n := int64(0)
	for i := 1; i < len(args); i += 2 {
		if _, ok := k.hash[args[i]]; !ok {
			n++
		}
		k.hash[args[i]] = args[i+1]
	}
	return n
}

func (x *execution) hdel(args []string) any {
	k := x.write(args[0])
	switch {
	case k == nil:
		return int64(0)
	case k.hash == nil:
		return errType
	}
	n := int64(0)
	for _, f := range args[1:] {
		if _, ok := k.hash[f]; ok {
			n++
			delete(k.hash, f)
		}
	}
	x.drop(args[0], k)
	return n
}

// zadd implements ZADD with NX as the only option. It parses all scores before it changes anything.
func (x *execution) zadd(args []string) any {
	pairs, nx := args[1:], false
	switch strings.ToUpper(pairs[0]) {
	case "NX":
		pairs, nx = pairs[1:], true
	case "XX", "GT", "LT", "CH", "INCR":
		return errUnknown
	}
	if len(pairs) == 0 || len(pairs)%2 != 0 {
		return errSyntax
	}
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		f, exact, _ := strtod(pairs[2*i])
		if !exact || math.IsNaN(f) {
			return errFloat
		}
		scores[i] = f + 0 // turns -0 into 0, as Redis does in a small sorted set
	}
	k := x.write(args[0])
	if k == nil {
		k = &key{scores: map[string]float64{}}
		x.space.keys[args[0]] = k
	}
	if k.scores == nil {
		return errType
	}
	n := int64(0)
	for i, f := range scores {
		member := pairs[2*i+1]
		_, known := k.scores[member]
		if !known {
			n++
		}
		if !known || !nx {
			k.scores[member] = f
		}
	}
	return n
}

func (x *execution) zrem(args []string) any {
	k := x.write(args[0])
	switch {
	case k == nil:
		return int64(0)
	case k.scores == nil:
		return errType
	}
	n := int64(0)
	for _, m := range args[1:] {
		if _, ok := k.scores[m]; ok {
			n++
			delete(k.scores, m)
		}
	}
	x.drop(args[0], k)
	return n
}

func (x *execution) zscore(args []string) any {
	k := x.read(args[0])
	if k == nil {
		return nil
	}
	if k.scores == nil {
		return errType
	}
	if f, ok := k.scores[args[1]]; ok {
		return decimal(f)
	}
	return nil
}

func (x *execution) zrange(args []string) any {
	withScores := len(args) > 3
	if len(args) > 4 || withScores && !strings.EqualFold(args[3], "WITHSCORES") {
		return errUnknown
	}
	from, err1 := integer(args[1])
	to, err2 := integer(args[2])
	if err1 != nil || err2 != nil {
		return errInteger
	}
	k := x.read(args[0])
	if k == nil {
		return []any{}
	}
	if k.scores == nil {
		return errType
	}
	all := k.members()
	if from < 0 {
		from = max(0, int64(len(all))+from)
	}
	if to < 0 {
		to += int64(len(all))
	}
	reply := []any{}
	for i := from; i <= to && i < int64(len(all)); i++ {
		reply = append(reply, all[i])
		if withScores {
			reply = append(reply, decimal(k.scores[all[i]]))
		}
	}
	return reply
}

// bound parses an end of a range of scores: -inf, +inf or a number. A ( before the end excludes it from the
// range.
func bound(s string) (f float64, open, ok bool) {
	s, open = strings.CutPrefix(s, "(")
	f, _, ok = strtod(s)
	return f, open, ok && !math.IsNaN(f)
}

// zrangebyscore implements ZRANGEBYSCORE with LIMIT 0 n as the only option.
func (x *execution) zrangebyscore(args []string) any {
	most := int64(math.MaxInt64)
	if len(args) > 3 {
		if len(args) != 6 || !strings.EqualFold(args[3], "LIMIT") || args[4] != "0" {
			return errUnknown
		}
		n, err := integer(args[5])
		if err != nil {
			return err
		}
		if n >= 0 { // a negative number means all
			most = n
		}
	}
	low, lowOpen, ok1 := bound(args[1])
	high, highOpen, ok2 := bound(args[2])
	if !ok1 || !ok2 {
		return errors.New("ERR min or max is not a float")
	}
	k := x.read(args[0])
	if k == nil {
		return []any{}
	}
	if k.scores == nil {
		return errType
	}
	reply := []any{}
	for _, m := range k.members() {
		f := k.scores[m]
		if f < low || lowOpen && f == low || f > high || highOpen && f == high || int64(len(reply)) >= most {
			continue
		}
		reply = append(reply, m)
	}
	return reply
}

func (x *execution) publish(args []string, sharded bool) any {
	x.published = append(x.published, Message{args[0], args[1], sharded})
	return int64(x.env.listening(args[0]))
}

func (x *execution) pubsub(args []string) any {
	if !strings.EqualFold(args[0], "NUMSUB") && !strings.EqualFold(args[0], "SHARDNUMSUB") {
		return errUnknown
	}
	reply := []any{}
	for _, channel := range args[1:] {
		reply = append(reply, channel, int64(x.env.listening(channel)))
	}
	return reply
}
