-- lock of protocol 2, as of commit abc8eea6, without its comments.
local function clock()
local time = redis.call('TIME')
local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
return tonumber(stamped), stamped
end
local now, stamped = clock()
if now > tonumber(ARGV[3]) then
return 'V ' .. stamped
end
local me, lease, keep, token, alone = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6]), nil, true
local call = redis.call
local known = call('HMGET', KEYS[1], 'owner', 'token', 'released', 'releaser', 'queued', 'lives', me)
local expiry = tonumber(known[6] or 0) or 0
local MOST = 9e15
if not known[1] and known[2] == known[3] and known[4] ~= me and not known[5] and not known[7]
and now > (tonumber(known[2] or now) or now)
and expiry >= now + (lease + keep) * 1000 and expiry < MOST then
token = stamped
call('HSET', KEYS[1], 'owner', me, 'ends', string.format('%.0f', now + lease * 1000), 'token', token,
'count', '1', 'change', '0', 'info', ARGV[5])
end
if token and not ARGV[11] then
return 'G ' .. stamped .. ' ' .. token
end
local BLOCK = 1000
local FIRST = 2000
local SPARE = 250
local BATCH = 1000
local function stamp(number)
return string.format('%.0f', number)
end
local function sound(value, most)
local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
return number and number <= (most or MOST) and number or nil
end
local function sharding(how, name)
local function may(...)
local known, allowed = pcall(redis.acl_check_cmd, ...)
return known and allowed
end
return how == 'auto' and may('SSUBSCRIBE', name) and may('SPUBLISH', name, '')
end
local function bad(key, field, value, why)
local function plain(text)
return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
return string.format('=%02X', string.byte(c))
end))
end
error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
',' .. plain(why) .. ' .', 0)
end
local function foreign(sort, lacks, field, value)
bad(KEYS[1], field, value, 'foreign ' .. sort .. ' ' .. lacks)
end
local function whole(key, field, value)
return not value and 0 or sound(value)
or bad(key, field, value, 'not a whole number from 0 to ' .. stamp(MOST))
end
local function onMaster(reply, key)
key = key or KEYS[1]
local refused = redis.pcall('HDEL', key, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
redis.call('HDEL', key, '')
end
return reply
end
local function session(owner)
return string.match(owner, '^[^:]*')
end
local function channel(channels, of, sharded)
return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end
local function notOurs(field, value)
foreign('lock', 'lives', field, value)
end
local function read(attempt, now, keep)
local f = redis.call('HMGET', KEYS[1], 'owner', 'ends', 'token', 'floor', 'released', 'releaser', 'queued',
'lives', 'ticket', 'change', 'info', 'lingers', attempt)
local other = f[8] and {} or redis.call('HGETALL', KEYS[1])
if other[1] then
notOurs(other[1], other[2])
end
local function field(name, value)
return whole(KEYS[1], name, value)
end
local s = { now = now, keep = tonumber(keep), ends = field('ends', f[2]), lives = field('lives', f[8]),
queued = field('queued', f[7]), ticket = field('ticket', f[9]), change = f[10], info = f[11] or '',
over = f[6] == attempt or f[13], granted = math.max(field('token', f[3]), field('floor', f[4])) }
s.last = s.granted
if f[3] ~= f[5] then
s.last = s.granted + BLOCK - 1
s.lost = s.last
end
if f[1] and not string.find(f[1], '^%S+$') then
bad(KEYS[1], 'owner', f[1], 'not an owner field')
end
if f[1] and s.ends > now then
s.owner, s.token, s.lingers = f[1], f[3] or '0', f[12]
s.left = math.ceil((s.ends - now) / 1000)
else
s.former = f[1]
end
s.marked = f[12] or f[4]
return s
end
local function set(s, till, ...)
if s.lives >= till + s.keep * 1000 then
redis.call('HSET', KEYS[1], ...)
return
end
local new = s.lives == 0
redis.call('HSET', KEYS[1], 'lives', stamp(s.lives))
s.lives = till + 2 * s.keep * 1000
local ms = stamp(math.ceil((s.lives - s.now) / 1000))
if new and redis.pcall('PEXPIRE', KEYS[1], ms) ~= 1 then
redis.call('DEL', KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], ms)
redis.call('HSET', KEYS[1], 'lives', stamp(s.lives), ...)
end
local function grant(s, owner, info, lease, ...)
local token, ends = stamp(math.max(s.now, s.last + 1)), s.now + lease * 1000
local lost = s.lost or s.granted == 0 and token - 1
set(s, ends, 'owner', owner, 'ends', stamp(ends), 'token', token, 'count', '1', 'change', '0',
'info', info, ...)
if lost then
redis.call('HSET', KEYS[1], 'lost', stamp(lost))
end
if s.marked then
redis.call('HDEL', KEYS[1], 'lingers', 'floor')
end
s.owner, s.token, s.info, s.ends, s.left, s.lingers = owner, token, info, ends, lease, nil
return token
end
local function waiter(owner, entry)
local alive, size, lease, nonce, sharded, seen, info =
string.match(entry or '', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$')
alive = alive and sound(alive)
return alive and { owner = owner, session = session(owner), alive = alive, size = size,
lease = tonumber(lease), nonce = nonce, sharded = sharded == '/', seen = seen == '+', info = info } or nil
end
local function audience(names, sharded)
local count = names[1] and redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', unpack(names)) or {}
if count.err then
return nil
end
local has = {}
for i = 1, #count, 2 do
has[count[i]] = count[i + 1] > 0
end
return has
end
local function lookUp(s, channels, options)
local q, at, size, passed, behind = { dead = {} }, 0, 2, nil, false
local enough = options.briefly and session(options.mine)
while not q.second and not (q.first and q.first.session == enough) and at - #q.dead < 2 * BATCH do
local owners = redis.call('ZRANGE', KEYS[2], at, at + size - 1)
local entries = owners[1] and redis.call('HMGET', KEYS[3], unpack(owners)) or {}
local found, names = {}, { {}, {} }
for i, owner in ipairs(owners) do
local w = waiter(owner, entries[i])
q.any = q.any or entries[i]
if w and w.seen and w.session ~= options.but and w.session ~= options.asking then
local asks = names[w.sharded and 2 or 1]
asks[#asks + 1] = channel(channels, w.session, w.sharded)
end
found[i] = w or { owner = owner, session = session(owner), alive = 0 }
end
local own = at == 0 and options.mine and options.told ~= '0' and (s.owner or owners[1])
and channel(channels, session(options.mine), options.told == '2')
if own then
local asks = names[options.told == '2' and 2 or 1]
asks[#asks + 1] = own
end
local heard = { audience(names[1], false), audience(names[2], true) }
if own then
local has = heard[options.told == '2' and 2 or 1]
q.hears = has and has[own]
end
for _, w in ipairs(found) do
local has = heard[w.sharded and 2 or 1]
local hears = not w.seen or w.session == options.asking or not has
or has[channel(channels, w.session, w.sharded)]
w.behind = behind
if w.owner == options.mine then
q.mine = w
end
if w.owner == options.leaving then
behind = true
elseif w.alive < s.now and w.owner ~= options.mine then
q.missing = q.missing or not q.first
q.dead[#q.dead + 1] = w.owner
elseif w.session == options.but then
elseif not hears then
q.missing = q.missing or not q.first and w.owner ~= options.mine
passed = passed or w
elseif not q.first then
q.first = w
else
q.next = q.next or w
q.second = q.second or w.session ~= q.first.session and w or nil
end
end
at = at + #owners
if #owners < size then
q.size = at
break
end
size = math.min(2 * size, BATCH)
end
if not q.first and passed and not options.but and at - #q.dead >= BATCH then
q.first, q.missing = passed, true
end
return q
end
local function leave(s, q, owner)
q.dead[#q.dead + 1] = owner
local gone = 0
for i = 1, #q.dead, BATCH do
local last = math.min(i + BATCH - 1, #q.dead)
gone = gone + redis.call('ZREM', KEYS[2], unpack(q.dead, i, last))
redis.call('HDEL', KEYS[3], unpack(q.dead, i, last))
end
local empty = q.size and q.size <= gone
if empty and s.queued > 0 then
redis.call('HDEL', KEYS[1], 'queued')
elseif not empty and s.queued == 0 then
set(s, s.now, 'queued', stamp(s.now))
end
return empty
end
local function stand(s, q)
local me, liveness = ARGV[1], tonumber(ARGV[7])
local alive, sharded = s.now + liveness * 1000, ARGV[10] == '2'
local seen = q.hears
if not seen then
local mine = q.mine or not q.size and waiter(me, redis.call('HGET', KEYS[3], me))
seen = mine and mine.seen and mine.sharded == sharded
end
redis.call('HSET', KEYS[3], me, table.concat({ stamp(alive), ARGV[2], ARGV[4],
ARGV[9] .. (sharded and '/' or '') .. (seen and '+' or ''), ARGV[5] }, ' '))
local ticket = stamp(math.max(s.ticket + 1, s.now))
local added = redis.call('ZADD', KEYS[2], 'NX', ticket, me) == 1
local longer = s.queued < alive or not q.any
if longer then
s.queued = s.now + 2 * liveness * 1000
redis.call('PEXPIRE', KEYS[2], 2 * liveness)
redis.call('PEXPIRE', KEYS[3], 2 * liveness)
end
if added or longer then
set(s, s.now + 2 * liveness * 1000, 'queued', stamp(s.queued), 'ticket',
added and ticket or stamp(s.ticket))
end
if added and q.size then
q.size = q.size + 1
end
end
local function publish(channels, w, ...)
redis[w.sharded and 'pcall' or 'call'](w.sharded and 'SPUBLISH' or 'PUBLISH',
channel(channels, w.session, w.sharded), table.concat({ w.owner, ... }, ' '))
end
local function tellNext(channels, q, lease)
local after = q.second or q.next
if after then
publish(channels, after, stamp(lease))
end
end
local function handOver(s, asking, channels, q, ...)
local w = q.first
if not w then
return nil
end
local lease = math.min(w.lease, math.ceil((w.alive - s.now) / 1000) + 1, FIRST)
local token = grant(s, w.owner, w.info, lease, ...)
leave(s, q, w.owner)
tellNext(channels, q, lease)
if w.session ~= asking then
publish(channels, w, token, stamp(s.now), stamp(lease), w.nonce)
end
return table.concat({ '', w.owner, token, stamp(lease) }, ' ')
end
local function handOn(s, channels, q, all)
local function tell(w, left)
if w and s.now + s.left * 1000 < w.alive and (all or w.behind or q.missing) then
publish(channels, w, stamp(left))
end
end
tell(q.first, s.left)
tell(q.second, s.left + SPARE)
end
local function lookout(s)
return string.sub(s.owner, -1) ~= '~' and session(s.owner) or nil
end
local function flags(asking, channels, told, q)
local behind = ''
if q.first and q.first.session ~= asking then
behind = q.second and q.second.session ~= asking and 'B' or 'S'
end
return behind .. (q.hears == false and 'D' or '') ..
(told ~= '1' and sharding('auto', channel(channels, asking, true)) and 'P' or '')
end
local function want(s, owner, channels, lingers)
redis.pcall('HSET', KEYS[1], 'refused', stamp(s.now))
publish(channels, { owner = owner, session = session(owner), sharded = lingers == '2' })
end
if not token then
local s = read(me, now, keep)
if s.owner == me then
call('HDEL', KEYS[1], '')
local ends = math.max(s.ends, now + lease * 1000)
set(s, ends, 'ends', stamp(ends))
return 'G ' .. stamped .. ' ' .. s.token
end
if s.over then
return onMaster('S ' .. stamped)
end
local waits, stood, q = tonumber(ARGV[7]) > 0, false, { dead = {}, size = 0 }
if not s.owner then
if s.queued > 0 or s.lives == 0 then
q = lookUp(s, ARGV[8], { asking = session(me), mine = me, told = ARGV[10] })
end
if q.first and q.first.owner ~= me then
if waits then
stand(s, q)
stood = true
end
handOver(s, session(me), ARGV[8], q)
else
token = grant(s, me, ARGV[5], lease)
alone = leave(s, q, q.mine and me)
tellNext(ARGV[8], q, lease)
end
end
if s.owner ~= me then
local said = ''
if waits then
q = lookUp(s, ARGV[8], { but = lookout(s), mine = me, told = ARGV[10], briefly = true })
if not stood then
stand(s, q)
end
leave(s, q)
said = flags(session(me), ARGV[8], ARGV[10], q)
if q.missing and q.first and q.first.session ~= session(me) then
handOn(s, ARGV[8], { first = q.first, missing = true })
end
end
if s.lingers and session(s.owner) ~= session(me) then
call('HDEL', KEYS[1], 'lingers')
want(s, s.owner, ARGV[8], s.lingers)
elseif not waits then
onMaster()
end
return table.concat({ 'Q' .. said, stamped, stamp(s.left), s.owner, s.token }, ' ') .. '\n' .. s.info
end
end
local may, said = false, ''
local function mayLinger(now)
local asking, told, hears = session(ARGV[1]), ARGV[10], nil
if told ~= '0' then
local name = channel(ARGV[8], asking, told == '2')
local has = audience({ name }, told == '2')
hears = has and has[name]
end
local said = flags(asking, ARGV[8], told, { hears = hears })
local at = sound(redis.call('HGET', KEYS[1], 'refused') or '')
if hears == false or at and math.abs(now - at) < tonumber(ARGV[11]) then
return false, said
end
return true, 'K' .. said
end
if ARGV[11] and alone then
may, said = mayLinger(now)
end
if may then
call('HSET', KEYS[1], 'lingers', ARGV[10])
end
return 'G' .. said .. ' ' .. stamped .. ' ' .. token
