-- permit of protocol 2, as of commit abc8eea6, without its comments.
local function clock()
local time = redis.call('TIME')
local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
return tonumber(stamped), stamped
end
local now, stamped = clock()
if now > tonumber(ARGV[3]) then
return 'V ' .. stamped
end
local me, n, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local keep, liveness = tonumber(ARGV[6]), tonumber(ARGV[7])
local call, token = redis.call, nil
local known = call('HMGET', KEYS[2], 'n', me, 'i', 't', 'q')
local queue = (known[5] or not known[4]) and call('PTTL', KEYS[3]) ~= -2
local BLOCK = 1000
local ALL = 1000000000
if not queue and ARGV[12] == '' and not known[2] and (not known[1] or known[1] == ARGV[11] or known[3])
and string.find(known[1] or ARGV[11], '^%d+$') and now > (tonumber(known[4] or 0) or now) then
local lasts, limit, inUse = call('PTTL', KEYS[1]), known[1] or ARGV[11], nil
if lasts == -2 then
inUse = call('PTTL', KEYS[6]) == -2 and 0
elseif #call('ZRANGEBYSCORE', KEYS[1], '-inf', stamped, 'LIMIT', 0, 1) == 0 then
local has = call('HMGET', KEYS[6], me, 'u')
inUse = not has[1] and has[2] and string.find(has[2], '^%d+$') and tonumber(has[2])
end
if inUse and inUse + n <= tonumber(limit) then
token = stamped
call('HSET', KEYS[2], 't', n == ALL and string.format('%.0f', now + BLOCK - 1) or token, 'n', limit)
call('HSET', KEYS[6], me, ARGV[2] .. ' ' .. token .. ' ' .. ARGV[5],
'u', string.format('%.0f', inUse + n))
call('ZADD', KEYS[1], string.format('%.0f', now + lease * 1000), me)
if lasts < lease then
call('PEXPIRE', KEYS[1], 2 * lease)
call('PEXPIRE', KEYS[6], 2 * lease)
end
if call('PTTL', KEYS[2]) < lease + keep then
call('PEXPIRE', KEYS[2], lease + 2 * keep)
end
end
end
if token and not ARGV[13] then
return 'G ' .. stamped .. ' ' .. token
end
local SPARE = 250
local BATCH = 1000
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
local function session(owner)
return string.match(owner, '^[^:]*')
end
local function channel(channels, of, sharded)
return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end
local function leave(...)
redis.call('ZREM', KEYS[3], ...)
redis.call('ZREM', KEYS[4], ...)
redis.call('HDEL', KEYS[5], ...)
end
local function listens(channels, of, sharded, unknown)
return subscribed(channel(channels, of, sharded), sharded, unknown)
end
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
local may, said = mayLinger(ARGV[13])
if may then
call('HSET', KEYS[6], me, ARGV[2] .. ' ' .. token .. '+' .. ARGV[10] .. ' ' .. ARGV[5], 'k', '1')
end
return 'G' .. said .. ' ' .. stamped .. ' ' .. token
end
queue = redis.call('PTTL', KEYS[3]) ~= -2
local function bad(key, field, value, why)
local function plain(text)
return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
return string.format('=%02X', string.byte(c))
end))
end
error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
',' .. plain(why) .. ' .', 0)
end
local function outlive(ms, keep)
if redis.call('PTTL', KEYS[2]) < ms then
redis.call('PEXPIRE', KEYS[2], ms + keep)
end
end
local function holding(owner, now)
local value = redis.call('HGET', KEYS[6], owner)
if not value then
return nil
end
local n, token, kept, about = string.match(value, '^(%d+) (%d+)%+?(%d?) (.*)$')
if not n then
bad(KEYS[6], owner, value, 'not a number of permits and a token')
end
local till = now and tonumber(redis.call('ZSCORE', KEYS[1], owner) or 0)
return tonumber(n), token, about, kept, till and till > now and math.ceil((till - now) / 1000) or nil
end
local function prolong(owner, ms, now, keep)
redis.call('ZADD', KEYS[1], stamp(now + ms * 1000), owner)
if redis.call('PTTL', KEYS[1]) < ms then
redis.call('PEXPIRE', KEYS[1], 2 * ms)
redis.call('PEXPIRE', KEYS[6], 2 * ms)
end
outlive(ms + keep, keep)
end
if ARGV[12] ~= '' and not queue then
local _, _, _, _, left = holding(ARGV[12], now)
if left then
prolong(ARGV[12], math.max(lease, left), now, keep)
return 'K ' .. stamped
end
end
local _, its, _, _, rest = holding(me, now)
if rest then
prolong(me, math.max(lease, rest), now, keep)
return 'G ' .. stamped .. ' ' .. its
end
local function onMaster(reply, key)
key = key or KEYS[1]
local refused = redis.pcall('HDEL', key, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
redis.call('HDEL', key, '')
end
return reply
end
if known[2] then
return onMaster('S ' .. stamped, KEYS[2])
end
local function whole(key, field, value)
return not value and 0 or sound(value)
or bad(key, field, value, 'not a whole number from 0 to ' .. stamp(MOST))
end
local limit = known[1] and whole(KEYS[2], 'n', known[1]) or tonumber(ARGV[11])
local function vacate(owner, channels, now)
local others = redis.call('ZSCORE', KEYS[3], owner) and redis.call('ZRANGE', KEYS[3], 1, 1)[1]
leave(owner)
if others then
local next, _, _, entry = listener('', channels, now)
if next then
tell('', channels, next, entry, '0')
end
end
end
if n > limit or limit ~= tonumber(ARGV[11]) and not known[3] then
if queue then
vacate(me, ARGV[8], now)
end
return onMaster('N ' .. stamped .. ' ' .. stamp(limit), KEYS[2])
end
local function used()
return whole(KEYS[6], 'u', redis.call('HGET', KEYS[6], 'u'))
end
local function giveBack(owner, n)
redis.call('HDEL', KEYS[6], owner)
redis.call('HSET', KEYS[6], 'u', stamp(math.max(0, used() - n)))
end
local function expire(now)
if redis.call('PTTL', KEYS[1]) == -2 then
if redis.call('PTTL', KEYS[6]) ~= -2 then
redis.call('DEL', KEYS[6])
end
return {}
end
local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stamp(now), 'LIMIT', 0, BATCH)
for _, owner in ipairs(over) do
local n = holding(owner)
if n then
giveBack(owner, n)
end
end
return over
end
local over = expire(now)
local function settle(over)
for _, owner in ipairs(over) do
if not redis.call('HGET', KEYS[6], owner) then
redis.call('ZREM', KEYS[1], owner)
end
end
if redis.call('PTTL', KEYS[1]) == -2 then
redis.call('DEL', KEYS[6])
end
end
local function allot(owner, n, about, lease, now, keep, limit)
local token = math.max(now, whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) + 1)
redis.call('HSET', KEYS[2], 't', stamp(n == ALL and token + BLOCK - 1 or token), 'n', stamp(limit))
redis.call('HSET', KEYS[6], owner, n .. ' ' .. stamp(token) .. ' ' .. about, 'u', stamp(used() + n))
prolong(owner, lease, now, keep)
return stamp(token)
end
if not queue and n <= limit - used() then
token = allot(me, n, ARGV[5], lease, now, keep, limit)
settle(over)
return 'G ' .. stamped .. ' ' .. token
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
if liveness > 0 and stand(now) then
redis.call('HSET', KEYS[2], 'n', stamp(limit))
end
local FIRST = 2000
local SERVE = 200
local function serve(asking, channels, now, keep, limit)
local reply, free, handed, changed = '', limit - used(), 0, false
while true do
local owner, alive, _, its, _, missing = listener(asking, channels, now)
if not owner then
return reply, false
end
changed = changed or missing
local n, lease, nonce, about = string.match(its, '^(%d+) (%d+) (%S*) (.*)')
n = tonumber(n)
if not n then
leave(owner)
changed = true
elseif n > limit then
leave(owner)
changed = true
tell('', channels, owner, its, '0')
elseif handed == SERVE then
tell('', channels, owner, its, '0')
return reply, false
elseif n > free then
return reply, changed
else
lease = math.min(tonumber(lease), math.ceil((alive - now) / 1000) + 1, FIRST)
local token = allot(owner, n, about, lease, now, keep, limit)
free, handed, changed = free - n, handed + 1, true
leave(owner)
tell(asking, channels, owner, its, token, stamp(now), stamp(lease), string.match(nonce, '^[^/+]*'))
if session(owner) == asking then
reply = reply .. ' ' .. owner .. ' ' .. token .. ' ' .. stamp(lease)
end
end
end
end
local served, changed = serve(session(me), ARGV[8], now, keep, limit)
settle(over)
local function firstEnd(now)
local owner, ends = unpack(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
return owner, owner and math.max(0, math.ceil((ends - now) / 1000)) or -1
end
local function handOnPermits(channels, now, ahead)
local owner, left = firstEnd(now)
if owner then
handOn(owner, channels, now, left, ahead)
end
end
if changed then
handOnPermits(ARGV[8], now)
end
_, token = holding(me)
if token then
prolong(me, lease, now, keep)
served = string.gsub(served, ' ' .. string.gsub(me, '%-', '%%-') .. ' %d+ %d+', '')
return 'G ' .. stamped .. ' ' .. token .. served
end
local function want(asking, channels, owner, told, now)
if redis.call('PTTL', KEYS[2]) ~= -2 then
redis.pcall('HSET', KEYS[2], 'z', stamp(now))
end
tell(asking, channels, owner, told == '2' and '0 0 /' or '')
end
local function wantAll(asking, channels, now)
local all, told, rest = redis.call('HGETALL', KEYS[6]), 0, false
for i = 1, #all, 2 do
local has, how, about = string.match(all[i + 1], '^(%d+ %d+)%+(%d)( .*)$')
if has and (told == SERVE or session(all[i]) == asking) then
rest = true
elseif has then
redis.call('HSET', KEYS[6], all[i], has .. about)
want(asking, channels, all[i], how, now)
told = told + 1
end
end
if not rest then
redis.call('HDEL', KEYS[6], 'k')
end
end
if redis.call('HGET', KEYS[6], 'k') then
wantAll(session(me), ARGV[8], now)
end
if liveness <= 0 then
onMaster(nil, KEYS[2])
end
local owner, left = firstEnd(now)
local _, token, about = holding(owner or '')
local said = liveness > 0 and flags(session(me), ARGV[8], ARGV[10], now, owner) or ''
local has = { 'Q' .. said, stamped, stamp(left), owner or '-', token or '0' }
return table.concat(has, ' ') .. served .. '\n' .. (about or '')
