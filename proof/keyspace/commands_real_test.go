package keyspace

import (
	_ "embed"
	"math"
	"strings"
	"testing"
)

//go:embed testdata/show.lua
var showText string

const start = 1_700_000_000_000_000 // Redis time in µs

// sample returns a space with keys of all types, some of which expire soon.
func sample() *Space {
	const ms = start / 1000
	s := New()
	s.keys["hash"] = &key{hash: map[string]string{"a": "1", "b": "x", "": "empty", "é\xff\x00": "\n"}}
	s.keys["zset"] = &key{scores: map[string]float64{"m": 1, "o": 2, "n": 2, "first": math.Inf(-1),
		"last": math.Inf(1), "half": 1.5}}
	s.keys["one"] = &key{hash: map[string]string{"a": "1"}}
	s.keys["oneset"] = &key{scores: map[string]float64{"m": 1}}
	s.keys["ends"] = &key{hash: map[string]string{"a": "1"}, expires: ms}
	s.keys["endsset"] = &key{scores: map[string]float64{"m": 1}, expires: ms}
	s.keys["ended"] = &key{hash: map[string]string{"a": "1"}, expires: ms - 1}
	s.keys["endedset"] = &key{scores: map[string]float64{"m": 1}, expires: ms - 1}
	s.keys["next"] = &key{hash: map[string]string{"a": "1"}, expires: ms + 1}
	s.keys["later"] = &key{hash: map[string]string{"a": "1"}, expires: ms + 5000}
	return s
}

// expressions has lists of Lua expressions. The test compares their values on a server and in a key space.
// Then it compares all keys.
var expressions = map[string]string{
	"time": `call('TIME'), call('time')`,
	"wrong type": `try('HGET', 'zset', 'a'), try('HMGET', 'zset', 'a', 'b'), try('HGETALL', 'zset'), ` +
		`try('HLEN', 'zset'), try('HSET', 'zset', 'a', '1'), try('HDEL', 'zset', 'a'), ` +
		`try('ZADD', 'hash', 1, 'm'), try('ZADD', 'hash', 'NX', 1, 'm'), try('ZREM', 'hash', 'a'), ` +
		`try('ZSCORE', 'hash', 'a'), try('ZRANGE', 'hash', 0, -1), try('ZRANGEBYSCORE', 'hash', 0, 1)`,
	"bad and wrong": `try('ZADD', 'hash', 'x', 'm'), try('ZRANGE', 'hash', 'x', 1), ` +
		`try('ZRANGEBYSCORE', 'hash', 'x', 1), try('HSET', 'zset', 'a'), try('HSET', 'zset', 'a', 1, 'b')`,
	"none": `call('HGET', 'no', 'a'), call('HMGET', 'no', 'a', 'b'), call('HGETALL', 'no'), ` +
		`call('HLEN', 'no'), call('HDEL', 'no', 'a'), call('ZREM', 'no', 'a'), call('ZSCORE', 'no', 'a'), ` +
		`call('ZRANGE', 'no', 0, -1), call('ZRANGEBYSCORE', 'no', 0, 1), call('PTTL', 'no'), ` +
		`call('PEXPIRE', 'no', 10), call('DEL', 'no')`,
	"fields": `call('HGET', 'hash', 'a'), call('HGET', 'hash', 'no'), ` +
		`call('HMGET', 'hash', 'a', 'no', 'b', 'a'), call('HGETALL', 'hash'), call('HLEN', 'hash'), ` +
		`call('HGET', 'hash', '')`,
	"fields change": `call('HSET', 'hash', 'a', '2', 'c', '3', 'c', '4'), call('HSET', 'new', 'a', ''), ` +
		`call('HDEL', 'hash', 'b', 'no', 'b'), call('HLEN', 'hash'), call('HDEL', 'one', 'a', 'a'), ` +
		`call('HLEN', 'one'), call('HSET', 'later', 'b', 1)`,
	"a new key": `call('HDEL', 'later', 'a'), call('HSET', 'later', 'a', 1), call('PTTL', 'later'), ` +
		`call('ZREM', 'oneset', 'm'), call('ZADD', 'oneset', 1, 'm'), ` +
		`call('ZREM', 'oneset', 'no', 'm', 'm'), call('HSET', 'oneset', 'a', 1)`,
	"del": `call('DEL', 'hash', 'zset', 'no', 'hash', 'ended', 'ends')`,
	"scores": `call('ZSCORE', 'zset', 'm'), call('ZSCORE', 'zset', 'half'), ` +
		`call('ZSCORE', 'zset', 'first'), call('ZSCORE', 'zset', 'last'), call('ZSCORE', 'zset', 'no'), ` +
		`call('ZRANGE', 'zset', 0, -1, 'WITHSCORES'), call('ZRANGE', 'zset', 0, -1, 'withscores')`,
	"ranks": `call('ZRANGE', 'zset', 0, 0), call('ZRANGE', 'zset', -1, -1), ` +
		`call('ZRANGE', 'zset', -2, 100), call('ZRANGE', 'zset', -100, 1), call('ZRANGE', 'zset', 2, 1), ` +
		`call('ZRANGE', 'zset', 6, 7), call('ZRANGE', 'zset', 5, 5), call('ZRANGE', 'zset', 0, -7), ` +
		`call('ZRANGE', 'zset', -100, -100)`,
	"bad ranks": `try('ZRANGE', 'zset', '1.5', 2), try('ZRANGE', 'zset', '', 2), ` +
		`try('ZRANGE', 'zset', 0, '+1'), try('ZRANGE', 'zset', 0, ' 1'), try('ZRANGE', 'zset', '01', 1), ` +
		`try('ZRANGE', 'zset', '-0', 1), try('ZRANGE', 'zset', 0.5, 1)`,
	"score ranges": `call('ZRANGEBYSCORE', 'zset', '-inf', '+inf'), ` +
		`call('ZRANGEBYSCORE', 'zset', '-inf', '(2'), call('ZRANGEBYSCORE', 'zset', '(1', 2), ` +
		`call('ZRANGEBYSCORE', 'zset', '(-inf', '(inf'), call('ZRANGEBYSCORE', 'zset', 2, 1), ` +
		`call('ZRANGEBYSCORE', 'zset', 1.5, '1.5'), call('ZRANGEBYSCORE', 'zset', '(1.5', '(1.5'), ` +
		`call('ZRANGEBYSCORE', 'zset', 'inf', 'inf')`,
	"limit": `call('ZRANGEBYSCORE', 'zset', '-inf', 'inf', 'LIMIT', 0, 2), ` +
		`call('ZRANGEBYSCORE', 'zset', '-inf', 'inf', 'limit', 0, 0), ` +
		`call('ZRANGEBYSCORE', 'zset', '(1', 'inf', 'LIMIT', 0, 100), ` +
		`call('ZRANGEBYSCORE', 'zset', '-inf', 'inf', 'LIMIT', 0, -1), ` +
		`call('ZRANGEBYSCORE', 'no', '-inf', 'inf', 'LIMIT', 0, 1)`,
	"bad scores": `try('ZRANGEBYSCORE', 'zset', 'x', 1), try('ZRANGEBYSCORE', 'zset', 1, '1x'), ` +
		`try('ZRANGEBYSCORE', 'zset', 'nan', 1), try('ZRANGEBYSCORE', 'zset', '((1', 1), ` +
		`try('ZRANGEBYSCORE', 'zset', 0, 1, 'LIMIT', 0, 'x'), ` +
		`try('ZRANGEBYSCORE', 'zset', 'x', 1, 'LIMIT', 0, 'x'), try('ZADD', 'zset', 'x', 'm'), ` +
		`try('ZADD', 'zset', 'nan', 'm'), try('ZADD', 'zset', '', 'm'), ` +
		`try('ZADD', 'zset', 7, 'm', 'x', 'n'), try('ZADD', 'new', 7, 'm', 'x', 'n'), ` +
		`try('ZADD', 'zset', '1e400', 'm')`,
	"zadd": `call('ZADD', 'zset', 5, 'm', 6, 'new', 7, 'new'), ` +
		`call('ZADD', 'zset', 1e3, 'k', '1e3', 'l', '-5', 'j', '+5', 'i', 'inf', 'h', '-INF', 'g', '0x10', ` +
		`'f', '.5', 'e'), call('ZRANGE', 'zset', 0, -1, 'WITHSCORES')`,
	"zadd nx": `call('ZADD', 'zset', 'NX', 5, 'm', 6, 'new', 7, 'new'), call('ZADD', 'no', 'nx', 1, 'm'), ` +
		`call('ZRANGE', 'zset', 0, -1, 'WITHSCORES'), try('ZADD', 'zset', 'NX', 5), ` +
		`try('ZADD', 'zset', 'NX', 5, 'm', 6), try('ZADD', 'zset', 5, 'm', 6), ` +
		`try('ZADD', 'zset', 'NX', 'x', 'm')`,
	"equal scores": `call('ZADD', 'new', 1, 'b', 1, 'a', 1, 'B', 1, '', 1, 'a\255', 1, 'a\0'), ` +
		`call('ZRANGE', 'new', 0, -1)`,
	"long scores": `call('ZADD', 'new', '9007199254740993', 'a', '1700000000000000.5', 'b', ` +
		`'12345678901234567', 'c', '-0', 'd', '0.5', 'e', '-1700000000000001', 'f', 9e15, 'g', '1e-7', ` +
		`'h'), call('ZSCORE', 'new', 'a'), call('ZSCORE', 'new', 'b'), call('ZSCORE', 'new', 'c'), ` +
		`call('ZSCORE', 'new', 'd'), call('ZSCORE', 'new', 'e'), call('ZSCORE', 'new', 'f'), ` +
		`call('ZSCORE', 'new', 'g'), call('ZRANGE', 'new', 0, 0, 'WITHSCORES')`,
	"numbers": `call('HSET', 'new', 'a', 1, 'b', -1, 'c', 1.5, 'd', 2^53, 'e', 1700000000000000, 'f', ` +
		`2^53 + 2, 'g', -0.25, 'h', 1e15 + 0.5, 'i', 12345678901234567, 7, 8, 'j', 0), ` +
		`call('HGETALL', 'new'), call('HGET', 'hash', 1)`,
	"odd numbers": `call('HSET', 'new', 'a', 1/0, 'b', -1/0), call('HGETALL', 'new')`,
	"this ms": `call('PTTL', 'ends'), call('HGET', 'ends', 'a'), call('HLEN', 'ends'), ` +
		`call('ZSCORE', 'endsset', 'm'), call('HSET', 'ends', 'b', 1), call('PTTL', 'ends'), ` +
		`call('PEXPIRE', 'ends', 1), call('PTTL', 'ends'), call('PTTL', 'next'), call('HGET', 'next', 'a')`,
	"the last ms": `call('PTTL', 'ended'), call('HGET', 'ended', 'a'), call('HLEN', 'ended'), ` +
		`call('HGETALL', 'ended'), call('ZSCORE', 'endedset', 'm'), call('PEXPIRE', 'ended', 1000), ` +
		`call('HDEL', 'ended', 'a'), call('DEL', 'endedset')`,
	"another type": `call('ZADD', 'ended', 1, 'm'), call('HSET', 'endedset', 'a', 1), ` +
		`call('PTTL', 'ended'), try('ZADD', 'ends', 1, 'm')`,
	"pexpire": `call('PEXPIRE', 'hash', 1000), call('PTTL', 'hash'), call('PEXPIRE', 'hash', 0), ` +
		`call('PTTL', 'hash'), call('PEXPIRE', 'zset', -5), call('PTTL', 'zset'), ` +
		`call('PEXPIRE', 'later', 1), call('PTTL', 'later'), call('PTTL', 'one'), ` +
		`call('PEXPIRE', 'one', 1e15), call('PTTL', 'one')`,
	"bad pexpire": `try('PEXPIRE', 'hash', 'x'), try('PEXPIRE', 'hash', ''), try('PEXPIRE', 'hash', 1.5), ` +
		`try('PEXPIRE', 'hash', '1e3'), try('PEXPIRE', 'hash', '010'), try('PEXPIRE', 'hash', '+1'), ` +
		`try('PEXPIRE', 'hash', ' 1'), try('PEXPIRE', 'hash', '9223372036854775807'), ` +
		`try('PEXPIRE', 'hash', '9223372036854775808'), try('PEXPIRE', 'no', 'x'), ` +
		`try('PEXPIRE', 'hash', 1e19)`,
	"arguments": `try('HGET', 'hash'), try('HGET', 'hash', 'a', 'b'), try('TIME', 1), try('PTTL'), ` +
		`try('PTTL', 'a', 'b'), try('HGETALL'), try('HSET', 'hash', 'a'), ` +
		`try('HSET', 'hash', 'a', 1, 'b'), try('HDEL', 'hash'), try('ZADD', 'zset', 1), ` +
		`try('ZSCORE', 'zset'), try('PUBLISH', 'c'), try('SPUBLISH', 'c', 'm', 'm'), try('DEL'), ` +
		`try('PUBSUB'), try('HMGET', 'hash')`,
	"odd arguments": `try('HGET', 'hash', false), try('HGET', 'hash', nil), try('HGET', {}, 'a'), ` +
		`try(false), try(), try('HSET', 'hash', 'z', true)`,
	"several at once": `call('HMGET', 'hash', unpack({ 'a', 'no', 'b', '', 'a' })), ` +
		`call('HMGET', 'no', unpack(call('ZRANGE', 'zset', 1, 3))), ` +
		`call('ZRANGE', 'zset', 1, 2), call('ZRANGE', 'zset', 3, 6), call('ZRANGE', 'zset', 6, 13), ` +
		`call('HDEL', 'hash', unpack({ 'b', 'no', '' })), call('HGETALL', 'hash'), ` +
		`call('ZREM', 'zset', unpack({ 'o', 'no', 'first', 'o' })), call('ZRANGE', 'zset', 0, -1), ` +
		`call('HSET', 'hash', unpack({ 'c', '1', 'd', '2' })), call('HGETALL', 'hash'), ` +
		`try('ZREM', 'zset', unpack({})), try('HDEL', 'hash', unpack({})), ` +
		`try('HMGET', 'hash', unpack({})), ` +
		`redis['pcall']('HGET', 'hash', 'a'), redis[false or 'call']('HGET', 'hash', 'c')`,
	"a key that ends": `call('PEXPIRE', 'ended', 1000), call('HSET', 'ended', 'lives', '0'), ` +
		`call('PTTL', 'ended'), call('PEXPIRE', 'ended', '30000'), ` +
		`call('HSET', 'ended', 'a', '1', 'b', '2'), ` +
		`call('PTTL', 'ended'), call('HDEL', 'ended', '')`,
	"subscribers": `call('PUBSUB', 'NUMSUB', 'c:A', 'c:B', 'c:C', 'c:B'), ` +
		`call('PUBSUB', 'SHARDNUMSUB', 'c:A', 'c:B', 'c:C'), call('PUBSUB', 'numsub'), ` +
		`try('PUBSUB', 'NUMSUB', 'x')[2], ` +
		`call('PUBSUB', 'NUMSUB', unpack({ 'c:C', 'c:A', 'c:B', 'c' })), ` +
		`call('PUBSUB', 'SHARDNUMSUB', unpack({ 'c:{k}:C', 'c:{k}:A', 'c:C' })), ` +
		`call('PUBSUB', 'NUMSUB', unpack({}))`,
	"publish": `call('PUBLISH', 'c:A', 'x'), call('PUBLISH', 'c:B', ''), call('publish', 'c:C', '1'), ` +
		`call('SPUBLISH', 'c:C', 'y'), try('SPUBLISH', 'c:A', 'z')`,
	"rights": `redis.acl_check_cmd('SPUBLISH', 'c', ''), redis.acl_check_cmd('ssubscribe', 'c'), ` +
		`(pcall(redis.acl_check_cmd, 'NOSUCH'))`,
	"caught": `{ pcall(function() return call('HGET', 'zset', 'a') end) }, ` +
		`{ pcall(function() error('text', 0) end) }, ` +
		`{ pcall(function() error({ err = 'LOCKLINE x' }) end) }, select('#', pcall(call, 'HGET', 'hash', ` +
		`'no'))`,
	"tonumber": `tonumber('1e3'), tonumber('010'), tonumber('0x10'), tonumber(' 7 '), tonumber('7 x'), ` +
		`tonumber(''), tonumber('-'), tonumber('.5'), tonumber('5.'), tonumber('1_0'), tonumber('0b1'), ` +
		`tonumber('9e15'), tonumber('99999999999999999999'), tonumber('inf'), tonumber('-inf'), ` +
		`tonumber('-5'), tonumber('+5'), tonumber('0x'), tonumber('1e400'), tonumber('\t1\n'), ` +
		`tonumber(nil), tonumber(false), tonumber({}), tonumber('1e'), tonumber('0x1p4')`,
	"texts": `'010' + 1, '1e3' * '2', '5' - 1, '7' / 2, ' 7 ' + 0, '0x10' + 0, 2 * '3', ` +
		`'9007199254740993' + 0`,
	"no numbers": `(pcall(function() return 'x' + 1 end)), (pcall(function() return nil + 1 end)), ` +
		`(pcall(function() return '' * 1 end)), (pcall(function() return 1 < '2' end)), ` +
		`(pcall(function() return 'a' .. nil end))`,
	"format": `string.format('%d%06d', '1700000000', '123'), string.format('%06d', 999999), ` +
		`string.format('%.0f', 1700000000000000), string.format('%.0f', 0.5), string.format('%.0f', 1.5), ` +
		`string.format('%.0f', 2.5), string.format('%.0f', -0.4), string.format('%.0f', 1e300), ` +
		`string.format('=%02X', 10), string.format('%s %s%%', 'a', 1), string.format('%.0f', '12'), ` +
		`string.format('%d', -1), string.format('%.0f', 1/0), string.format('%.0f', -1/0), ` +
		`string.format('%5.1f|%-5d|%+d', 1.25, 7, 7), string.format('%.17g', 0.5), ` +
		`string.format('%d', 3.9), (pcall(string.format, '%d', 'x')), (pcall(string.format, '%d'))`,
	"numbers as text": `1 .. '', 1.5 .. '', -3 .. ' ' .. 1e13, table.concat({ 1, 2.5, 'x', 1e14, ` +
		`9007199254740991, 1/0, -1/0 }, ' '), table.concat({ 'a', 'b' })`,
	"patterns": `string.match('a:1', '^[^:]*'), string.match('', '^[^:]*'), ` +
		`string.match('5 2000 n1/+ me', '^%d+ (%d+) (%S*) (.*)'), ` +
		`string.match('5 2000 n1/+ me', '^%d+ %d+ [^ /+]*(/?)%+ '), ` +
		`string.match('5 2000 n1 me', '^%d+ %d+ [^ /+]*(/?)%+ '), string.match('n1/+', '^[^/+]*'), ` +
		`string.find('ab:c', ':', 1, true), string.find('12a', '^%d+$'), string.find('12', '^%d+$'), ` +
		`string.match('s:12', '^(.*):(%d+)$'), string.match('s:1:12', '^(.*):(%d+)$'), ` +
		`{ string.gsub('a-b', '%-', '%%-') }, string.gsub(' A:1 5 6 B:1 7 8', ' ' .. string.gsub('A:1', ` +
		`'%-', '%%-') .. ' %d+ %d+', ''), string.sub('lock', 2), string.sub('lock', -1), ` +
		`string.sub('lock', 1, 1), string.sub('lock', 9), string.match('c 5', '^%d+ (.+)$'), ` +
		`string.byte('A'), select('#', string.match('a', 'b')), tonumber(string.match('a', '%d'))`,
	"waiters": `{ string.match('17 5 2000 n1/+ me', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$') }, ` +
		`{ string.match('17 5 2000 n1 a  b', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$') }, ` +
		`{ string.match('17 5 2000 + ', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$') }, ` +
		`{ string.match('17 5 2000 n1+/ me', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$') }, ` +
		`{ string.match('5 2000 n1 me', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$') }, ` +
		`{ string.match('A:1 17 3 a value', '^(%S+) (%d+) (%d+) ') }, ` +
		`string.sub('A:1~', -1), string.sub('{k}', #'c:' - 1), string.find('A:1', ':', 1, true)`,
	"escapes": `(string.gsub('a,b c=\255.é', '[^!-$&-+%-.-<>-~]', ` +
		`function(c) return string.format('=%02X', string.byte(c)) end))`,
	"tables": `{ unpack({ 1, 2, 3 }, 2, 3) }, { unpack({}) }, #{ 1, 2, 3 }, next({}), select(2, 'a', 'b'), ` +
		`math.max(1, 2.5), math.min(3, 2), math.ceil(1.2), math.ceil(-1.2), math.ceil(3), ` +
		`math.abs(-3), math.abs(2.5), ` +
		`(function() local t = { 1, 2 } t[#t + 1] = nil t[#t + 1] = 3 return #t end)(), ` +
		`(function() local n = 0 for i, v in ipairs({ 1, 2, nil, 4 }) do n = n + i end return n end)(), ` +
		`(function(a, ...) return table.concat({ a, ... }, ' ') end)('a', 'b', 'c'), ` +
		`(function(...) return select('#', ...) end)(unpack({})), ` +
		`table.concat({}, ' '), (pcall(table.concat, { 'a', false }, ' '))`,
}

// returns has scripts. The test compares their replies on a server and in a key space.
var returns = map[string]string{
	"a number":          `return 3.7`,
	"a negative number": `return -3.7`,
	"true":              `return true`,
	"false":             `return false`,
	"nil":               `return nil`,
	"nothing":           ``,
	"an error reply":    `return redis.error_reply('TRYAGAIN the queue may be needed')`,
	"a caught error":    `return redis.pcall('HGET', 'zset', 'a')`,
	"a raised error":    `redis.call('HSET', 'new', 'a', 1) return redis.call('HGET', 'zset', 'a')`,
	"an error of Lua":   "redis.call('HSET', 'new', 'a', 1)\nlocal x\nreturn x.y",
	"error at level 0":  `error('LOCKLINE k,f,v,why .', 0)`,
	"error at level 1":  "\nerror('why')",
	"a comparison":      "local x = 1\nreturn x < '2'",
	"in a function":     "local function f()\n  return 1 + nil\nend\nf()",
	"a wrong argument":  "local at = string.find(nil, 'x')\nreturn at",
	"no such command":   `return redis.call('HGET')`,
	"KEYS and ARGV": `return table.concat(KEYS, '|') .. #KEYS .. table.concat(ARGV, ` +
		`'|') .. #ARGV .. tostring(ARGV[3])`,
	"JSON": `return cjson.encode({ ttl = redis.call('PTTL', 'ends'), ` +
		`lock = { ['a/"\\\n\1é\127'] = '<&>' }, none = nil, list = { 'x', '1' }, flag = true, ` +
		`number = 1700000000000, half = 0.5 })`,
	"JSON that is empty": `return cjson.encode({})`,
	"JSON of a list": `return cjson.encode({ now = select(2, 1, '5'), ` +
		`limit = redis.call('HGET', 'no', 'n') or nil })`,
	"a member of a false": `return redis.pcall('HGET', 'no', 'a').err`,
}

func TestCommandsAndLuaAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	scripts := map[string]string{}
	for name, text := range expressions {
		scripts[name] = showText + "return showAll(" + text + ")"
	}
	for name, text := range returns {
		scripts["return "+name] = text
	}
	keys, argv := []string{"hash"}, []string{"a", ""}
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) {
			script, err := Compile("script", text)
			if err != nil {
				t.Fatal(err)
			}
			before := sample()
			want := s.run(t, s.load(t, shimmed(text)), before, start, keys, argv)
			got := outcomeOf(script.Run(before, Env{Now: start, Listening: listening}, keys, argv), start)
			if got != want {
				t.Errorf("the key space:\n%v\nthe server:\n%v", pretty(got), pretty(want))
			}
			if before.Encode() != sample().Encode() {
				t.Error("the script changed the space that it was run on")
			}
		})
	}
}

func pretty(o outcome) string { return strings.ReplaceAll(o.String(), `\n`, "\n\t") }
