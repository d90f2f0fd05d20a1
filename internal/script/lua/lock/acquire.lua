-- Takes a free lock that has no waiters. Otherwise the attempt waits in the queue. A free lock with a queue
-- is granted to the first waiter that lives and has a subscription.
--
-- Sending the request again is harmless: a holder gets its token again, and its lease lasts for at least
-- ARGV[4] ms from now. A waiter
-- keeps its place, and is known to live for longer.
--
-- KEYS      see internal/script/lua/queue.lua
-- ARGV[1]   owner field, SESSION:ATTEMPT
-- ARGV[2]   how many goroutines wait with this attempt
-- ARGV[3]   Redis time in µs after which this request is void
-- ARGV[4]   lease in ms
-- ARGV[5]   holder info, PID@HOST LABEL
-- ARGV[6]   KEEP
-- ARGV[7]   ms for which the attempt is known to live. 0: it does not wait
-- ARGV[8]   CHANNELS
-- ARGV[9]   nonce, which comes back in the message of a grant, so that no other client can forge one
-- ARGV[10]  TOLD
-- ARGV[11]  if it is there, the session wants to keep the lock while no goroutine has it, unless others wait,
--           or another session was refused the lock for that reason less than so many µs ago
--
-- Replies (NOW is the Redis time in µs)
--   G NOW TOKEN             granted, by this request or an earlier copy of it. Behind the G stand flags of
--                           mayLinger in queue.lua
--   Q NOW LEFT OWNER TOKEN  held by OWNER, whose lease ends in LEFT ms. Second line: its holder info. Behind
--   the
--                           Q stand flags of queue.lua
--   V NOW                   void: arrived too late
--   S NOW                   stale: this attempt has already ended

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
local me, lease, keep, token, alone = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6]), nil, true
local call = redis.call -- looked up once, which saves time
-- The common case: nobody holds the lock or waits for it, and the last grant was released.
local known = call('HMGET', KEYS[1], 'owner', 'token', 'released', 'releaser', 'queued', 'lives', me)
local expiry = tonumber(known[6] or 0) or 0
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
if not token then
  local s = read(me, now, keep)
  if s.owner == me then
    call('HDEL', KEYS[1], '') -- a server that is full takes what follows then
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
      if waits then -- first, or the hand-over could empty the queue: see leave
        stand(s, q)
        stood = true
      end
      handOver(s, session(me), ARGV[8], q)
    else
      token = grant(s, me, ARGV[5], lease)
      alone = leave(s, q, q.mine and me)
      tellNext(ARGV[8], q, lease) -- the queue is empty, unless this attempt was the first there
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
    elseif not waits then -- nothing may have been written
      onMaster()
    end
    return table.concat({ 'Q' .. said, stamped, stamp(s.left), s.owner, s.token }, ' ') .. '\n' .. s.info
  end
end
local may, said = false, ''
if ARGV[11] and alone then
  may, said = mayLinger(now)
end
if may then
  call('HSET', KEYS[1], 'lingers', ARGV[10])
end
return 'G' .. said .. ' ' .. stamped .. ' ' .. token
