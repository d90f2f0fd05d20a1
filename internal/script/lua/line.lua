-- Functions for the queue of attempts that wait for permits. Only the scripts of permits use them.
--
-- KEYS[1] what is waited for. Sharded channels have its name
-- KEYS[2] the metadata; beside the rest q -> last ticket
-- KEYS[3] queue: waiting attempts by ticket
-- KEYS[4] alive: the same attempts by the Redis time in microseconds until which each is known to live
-- KEYS[5] 'SIZE LEASE NONCE ABOUT' of each attempt: how many wait with it, the lease in milliseconds that it
--         asks for, what proves to its session that a message about it is Redis' own, and what its session
--         says of itself. Behind the nonce there is a '/' if the session is to be told by sharded pub/sub,
--         and a '+' once this server has seen it listen, so that no listener means that it is gone, or that
--         its connection broke
-- How a session is told, in the arguments: '0' by PUBLISH, where other servers know of listeners, too;
-- '1' by PUBLISH; '2' by SPUBLISH, on a channel of the lock and the session

-- leave takes attempts out of the queue.
local function leave(...)
  redis.call('ZREM', KEYS[3], ...)
  redis.call('ZREM', KEYS[4], ...)
  redis.call('HDEL', KEYS[5], ...)
end

-- listens: this server has clients that listen to the channel of a session.
local function listens(channels, of, sharded, unknown)
  return subscribed(channel(channels, of, sharded), sharded, unknown)
end

-- listener returns the first waiter that is alive and has not lost its subscription. A waiter that has lost
-- its subscription is skipped but keeps its place, because its session may be reconnecting. Unless `from` is
-- above 0, dead waiters at the head of the queue are removed.
--   asking   session that sent this request: the reply notifies it, so it may be unsubscribed; '': none
--   now      Redis time in us; nil: read the clock
--   from     index to start at, skipping waiters of `asking`. nil: start at the head and skip none of those;
--            if BATCH waiters are skipped, the first of them that is alive is returned all the same
-- Returns its owner field, the time until which it is alive, now, its entry, its index, and whether a waiter
-- before it was dead or had lost its subscription. Returns nothing if there is no such waiter.
local function listener(asking, channels, now, from)
  local i, passed, missing = from or 0, nil, false
  for _ = 0, BATCH do
    local next = redis.call('ZRANGE', KEYS[3], i, i)[1]
    if not next then
      return
    end
    now = now or clock()
    local alive = tonumber(redis.call('ZSCORE', KEYS[4], next) or 0) or 0
    if alive > now + 1e15 then -- decades: it is no liveness time
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

-- stand has the attempt of an acquire script, whose ARGV it reads, stand in the queue, where it keeps its
-- place if it is there, and live for at least its liveness more. It reports whether it is new there.
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

-- tell sends the words to the session of a waiter with this entry, unless that session is asking.
local function tell(asking, channels, to, entry, ...)
  if session(to) ~= asking then
    local sharded = string.find(entry, '^%d+ %d+ [^ /+]*/')
    -- Not every user may use SPUBLISH, and a server that was put in for another may not have it.
    redis[sharded and 'pcall' or 'call'](sharded and 'SPUBLISH' or 'PUBLISH',
      channel(channels, session(to), sharded), table.concat({ to, ... }, ' '))
  end
end

-- looker returns the waiter that is to send its request again when a lease ends: the first one in the queue
-- that is not of the holder's session, which may be frozen. Returns what listener does.
--   of    owner field of the holder. If it ends with '~', its session has unlocked, so it is not frozen
--   now   Redis time in us; nil: read the clock
local function looker(of, channels, now)
  return listener(string.sub(of, -1) ~= '~' and session(of) or '', channels, now, 0)
end

-- handOn notifies the waiters that are to send their requests again when a lease ends. That is needed
-- whenever the head of the queue changes while what it waits for stays taken. A waiter is not notified if it
-- is going to send its heartbeat before that lease ends, because the reply will say the same.
--   of     owner field of the holder
--   now    Redis time in us
--   left   ms until its lease ends; negative: never
--   ahead  ticket of a waiter that was removed, or 0: of the first two in the queue, those behind that ticket
--          are notified. The second one looks if the first one does not. nil: the first one is notified
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

-- flags returns what the reply tells a session beside the rest:
--   B   of a waiter: another session looks when the lease ends
--   S   of a waiter: as B, but this session is the second in the queue, and looks SPARE ms later
--   D   this server has no subscriber to the channel of the session, which is to be notified here
--   P   the session may be notified by SPUBLISH
-- Parameters: asking, the session; told, how it is notified; and of a waiter also now, Redis time in us; of,
-- the owner field of the holder whose lease ends first; and left, ms until then, with which the first waiter
-- is notified if others before it are dead or have lost their subscriptions.
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

-- mayLinger decides whether the session of an acquire script, whose ARGV it reads, may keep what it was
-- granted while no goroutine has it. It must listen, and none have been refused for that reason for quiet
-- microseconds. Returns that, and the flags of the reply: K if it may, and as flags says.
local function mayLinger(quiet)
  local said, at = flags(session(ARGV[1]), ARGV[8], ARGV[10]), sound(redis.call('HGET', KEYS[2], 'z') or '')
  if string.find(said, 'D', 1, true) or at and math.abs(clock() - at) < tonumber(quiet) then
    return false, said
  end
  return true, 'K' .. said
end

-- want tells the session of an owner, which is told so, that another one wants what it may keep, and notes
-- the time, if there are metadata.
local function want(asking, channels, owner, told, now)
  if redis.call('PTTL', KEYS[2]) ~= -2 then -- else it would have no end
    redis.pcall('HSET', KEYS[2], 'z', stamp(now))
  end
  tell(asking, channels, owner, told == '2' and '0 0 /' or '')
end
