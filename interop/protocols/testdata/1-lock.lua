-- lock of protocol 1, as of commit 69a25ee9, without its comments.
local function clock()
local time = redis.call('TIME')
local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
return tonumber(stamped), stamped
end
local now, stamped = clock()
if now > tonumber(ARGV[3]) then
return 'V ' .. stamped
end
local me, lease, keep, token = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6]), nil
local call = redis.call
if call('HLEN', KEYS[1]) == 0 then
local known = call('HMGET', KEYS[2], 't', 'r', 'a', me, 'q')
if known[1] == known[2] and now > (tonumber(known[1] or 0) or now) and known[3] ~= me and not known[4]
and (known[1] and not known[5] or call('PTTL', KEYS[3]) == -2) then
token = stamped
call('HSET', KEYS[1], me, '1', 't', token, 's', '0', 'd', ARGV[5])
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
if expires ~= 1 then
call('DEL', KEYS[1])
return expires
end
call('HSET', KEYS[2], 't', token)
if call('PTTL', KEYS[2]) < lease + keep then
call('PEXPIRE', KEYS[2], lease + 2 * keep)
end
end
end
if token and not ARGV[11] then
return 'G ' .. stamped .. ' ' .. token
end
local function stamp(number)
return string.format('%.0f', number)
end
local MOST = 9e15
local function sound(value, most)
local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
return number and number <= (most or MOST) and number or nil
end
local function subscribed(name, sharded, unknown)
local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
if count.err then
return unknown
end
return count[2] > 0
end
local function sharding(how, name)
local function may(...)
local known, allowed = pcall(redis.acl_check_cmd, ...)
return known and allowed
end
return how == 'auto' and may('SSUBSCRIBE', name) and may('SPUBLISH', name, '')
end
local function leave(...)
redis.call('ZREM', KEYS[3], ...)
redis.call('ZREM', KEYS[4], ...)
redis.call('HDEL', KEYS[5], ...)
end
local function session(owner)
return string.match(owner, '^[^:]*')
end
local function channel(channels, of, sharded)
return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end
local function listens(channels, of, sharded, unknown)
return subscribed(channel(channels, of, sharded), sharded, unknown)
end
local BATCH = 1000
local function listener(asking, channels, now, from)
local i, passed, missing = from or 0, nil, false
for _ = 0, BATCH do
local next = redis.call('ZRANGE', KEYS[3], i, i)[1]
if not next then
return
end
now = now or clock()
local alive = tonumber(redis.call('ZSCORE', KEYS[4], next) or 0) or 0
if alive > now + 1e15 then
alive = 0
end
if alive < now and i == 0 then
missing = true
leave(next)
local dead = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. stamp(now), 'LIMIT', 0, BATCH)
if #dead > 0 then
leave(unpack(dead))
end
else
if alive >= now then
local entry = redis.call('HGET', KEYS[5], next) or ''
local marked = string.match(entry, '^%d+ %d+ [^ /+]*(/?)%+ ')
local own = session(next) == asking
if not (own and from)
and (own or not marked or listens(channels, session(next), marked == '/', true)) then
return next, alive, now, entry, i, missing
end
passed = passed or { next, alive, now, entry, i, true }
missing = missing or not own
else
missing = true
end
i = i + 1
end
end
if passed and not from then
return unpack(passed)
end
end
local function tell(asking, channels, to, entry, ...)
if session(to) ~= asking then
local sharded = string.find(entry, '^%d+ %d+ [^ /+]*/')
redis[sharded and 'pcall' or 'call'](sharded and 'SPUBLISH' or 'PUBLISH',
channel(channels, session(to), sharded), table.concat({ to, ... }, ' '))
end
end
local SPARE = 250
local function looker(of, channels, now)
return listener(string.sub(of, -1) ~= '~' and session(of) or '', channels, now, 0)
end
local function handOn(of, channels, now, left, ahead)
local next, alive, _, entry, at, missing = looker(of, channels, now)
local function notify(ms)
local due = left >= 0 and now + left * 1000 < alive
if due and (not ahead or missing or tonumber(redis.call('ZSCORE', KEYS[3], next)) > ahead) then
tell('', channels, next, entry, stamp(ms))
end
end
if next then
notify(left)
end
if next and ahead then
next, alive, _, entry = listener(session(next), channels, now, at + 1)
if next then
notify(left + SPARE)
end
end
end
local function flags(asking, channels, told, now, of, left)
local behind = ''
if of then
local next, _, _, _, at, missing = looker(of, channels, now)
if next and session(next) ~= asking then
local second = listener(session(next), channels, now, at + 1)
behind = second and session(second) == asking and 'S' or 'B'
if missing and left then
handOn(of, channels, now, left)
end
end
end
return behind ..
(told ~= '0' and not listens(channels, asking, told == '2', true) and 'D' or '') ..
(told ~= '1' and sharding('auto', channel(channels, asking, true)) and 'P' or '')
end
local function mayLinger(quiet)
local said, at = flags(session(ARGV[1]), ARGV[8], ARGV[10]), sound(redis.call('HGET', KEYS[2], 'z') or '')
if string.find(said, 'D', 1, true) or at and math.abs(clock() - at) < tonumber(quiet) then
return false, said
end
return true, 'K' .. said
end
if token then
local may, said = mayLinger(ARGV[11])
if may then
redis.call('HSET', KEYS[1], 'k', ARGV[10])
end
return 'G' .. said .. ' ' .. stamped .. ' ' .. token
end
local liveness = tonumber(ARGV[7])
local owner, about, kept
local function bad(key, field, value, why)
local function plain(text)
return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
return string.format('=%02X', string.byte(c))
end))
end
error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
',' .. plain(why) .. ' .', 0)
end
local function whole(key, field, value)
return not value and 0 or sound(value)
or bad(key, field, value, 'not a whole number from 0 to ' .. stamp(MOST))
end
local function holder(any)
local held = redis.call('HGETALL', KEYS[1])
local about, owner, other, count, token, kept = ''
for i = 1, #held, 2 do
local field, value = held[i], held[i + 1]
if field == 't' then
token = value
elseif field == 'd' then
about = value
elseif field == 'k' then
kept = value
elseif field ~= 's' and field ~= 'w' then
other = owner
owner, count = field, value
end
end
if owner and token and not any then -- a JVM's has no token
whole(KEYS[1], 't', token)
if other then
bad(KEYS[1], owner, count, 'a second owner beside "' .. other .. '"')
end
end
return owner, token or '0', about, kept
end
owner, token, about, kept = holder()
local function onMaster(reply)
local key = KEYS[2] or KEYS[1]
local refused = redis.pcall('HDEL', key, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
redis.call('HDEL', key, '')
end
return reply
end
local function outlive(ms, keep)
if redis.call('PTTL', KEYS[2]) < ms then
redis.call('PEXPIRE', KEYS[2], ms + keep)
end
end
local function renew(ms, keep)
if redis.call('PTTL', KEYS[1]) < ms then
redis.call('PEXPIRE', KEYS[1], ms)
outlive(ms + keep, keep)
else
onMaster()
end
end
if owner == me then
renew(lease, keep)
return 'G ' .. stamped .. ' ' .. token
end
local left = owner and redis.call('PTTL', KEYS[1])
if left == -1 then
bad(KEYS[1], owner, redis.call('HGET', KEYS[1], owner), 'a hold that never expires')
end
local BLOCK = 1000
local function past(owner)
local metadata = redis.call('HMGET', KEYS[2], 't', 'r', 'a', owner)
local last, lost = whole(KEYS[2], 't', metadata[1]), nil
if metadata[1] and metadata[1] ~= metadata[2] then
last = last + BLOCK - 1
lost = last
end
return last, lost, metadata[3] == owner or metadata[4]
end
local last, lost, over = past(me)
if over then
return onMaster('S ' .. stamped)
end
local function stand(now)
local me, liveness, keep = ARGV[1], tonumber(ARGV[7]), tonumber(ARGV[6])
local ticket, before = stamp(math.max((sound(redis.call('HGET', KEYS[2], 'q') or '') or 0) + 1, now)), nil
local added = redis.call('ZADD', KEYS[3], 'NX', ticket, me) == 1
if added then
redis.call('HSET', KEYS[2], 'q', ticket)
else
before = string.match(redis.call('HGET', KEYS[5], me) or '', '^%d+ %d+ [^ /+]*([/+]*) ')
end
local sharded = ARGV[10] == '2'
local seen = before and sharded == (string.find(before, '/', 1, true) ~= nil)
and string.find(before, '+', 1, true)
or ARGV[10] ~= '0' and listens(ARGV[8], session(me), sharded, false)
local marked = ARGV[9] .. (sharded and '/' or '') .. (seen and '+' or '')
redis.call('HSET', KEYS[5], me, table.concat({ ARGV[2], ARGV[4], marked, ARGV[5] }, ' '))
redis.call('ZADD', KEYS[4], stamp(now + liveness * 1000), me)
if redis.call('PTTL', KEYS[3]) < liveness then
for i = 3, 5 do
redis.call('PEXPIRE', KEYS[i], 2 * liveness)
end
end
outlive(2 * liveness + keep, keep)
return added
end
local added = liveness > 0 and (owner or redis.call('PTTL', KEYS[3]) ~= -2) and stand(now)
local function above(last, now)
return stamp(math.max(now, last + 1))
end
local function grant(owner, about, lease, token, keep, lost, wanted)
if wanted then
redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about, 'w', '1')
else
redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
end
local expires = redis.pcall('PEXPIRE', KEYS[1], lease)
if expires ~= 1 then
redis.call('DEL', KEYS[1])
error(expires.err, 0)
end
if lost then
redis.call('HSET', KEYS[2], 't', token, 'l', stamp(lost))
else
redis.call('HSET', KEYS[2], 't', token)
end
outlive(lease + keep, keep)
end
local function want(asking, channels, owner, told, now)
if redis.call('PTTL', KEYS[2]) ~= -2 then
redis.pcall('HSET', KEYS[2], 'z', stamp(now))
end
tell(asking, channels, owner, told == '2' and '0 0 /' or '')
end
local FIRST = 2000
local function handOver(asking, channels, now, keep, last, lost)
local owner, alive, entry, at
owner, alive, now, entry, at = listener(asking, channels, now)
if not owner then
return
end
local lease, nonce, about = string.match(entry, '^%d+ (%d+) (%S*) (.*)')
lease = math.min(tonumber(lease or 9e15), math.ceil((alive - now) / 1000) + 1, FIRST)
local next, _, _, its = listener(session(owner), channels, now, at + 1)
if not next then
next, _, _, its = listener('', channels, now, at + 1)
end
local token = above(last, now)
grant(owner, about or '', lease, token, keep, lost, true)
leave(owner)
if next then
tell('', channels, next, its, stamp(lease))
end
nonce = string.match(nonce or '', '^[^/+]*')
tell(asking, channels, owner, entry, token, stamp(now), stamp(lease), nonce)
return owner, token, about or '', table.concat({ '', owner, token, stamp(lease) }, ' ')
end
if owner then
if added then
redis.call('HSET', KEYS[1], 'w', '1')
end
if kept and session(owner) ~= session(me) then
redis.call('HDEL', KEYS[1], 'k')
want(session(me), ARGV[8], owner, kept, now)
end
else
owner, token, about = handOver(session(me), ARGV[8], now, keep, last, lost)
if not owner then
token = above(last, now)
grant(me, ARGV[5], lease, token, keep, lost, redis.call('PTTL', KEYS[3]) ~= -2)
elseif owner == me then
renew(lease, keep)
end
if not owner or owner == me then
return 'G ' .. stamped .. ' ' .. token
end
end
if liveness <= 0 then
onMaster()
end
left = left or redis.call('PTTL', KEYS[1])
local said = liveness > 0 and flags(session(me), ARGV[8], ARGV[10], now, owner, left) or ''
return table.concat({ 'Q' .. said, stamped, stamp(left), owner, token }, ' ') .. '\n' .. about
