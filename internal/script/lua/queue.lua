-- The keys of the waiters of a lock, and the functions that read and write them.
--
-- KEYS[1]   the lock's hash. Sharded channels have its name
-- KEYS[2]   the queue: waiting attempts by ticket, a sorted set
-- KEYS[3]   the waiters: attempt -> 'ALIVE SIZE LEASE NONCE INFO', a hash
--             ALIVE   Redis time in µs until which the attempt is known to live. Each of its requests
--                     postpones that
--             SIZE    number of goroutines that wait with it. For a lock with permits, the number of permits
--                     that it wants
--             LEASE   the lease in ms that it wants
--             NONCE   proves to its session that a message about a grant is from Redis. A '/' behind it means
--                     that the session is notified by sharded pub/sub. A '+' means that the session had a
--                     subscription at this server. If it has none now, it has ended, or its connection broke
--             INFO    holder info
--
-- Arguments of several scripts:
--   CHANNELS  beginning of the names of the sessions' channels
--   DELIVERY  how the session is notified
--               '0'  by PUBLISH, if other servers may have its subscription
--               '1'  by PUBLISH, if only this server can have its subscription
--               '2'  by SPUBLISH, on the channel of the session for this lock

-- parseWaiter parses the entry of an attempt. If there is none, or if somebody has edited it, the result has
-- only the fields owner and session, and alive = 0.
local function parseWaiter(owner, entry)
  local alive, size, lease, nonce, sharded, seen, info =
    string.match(entry or '', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$')
  alive = alive and parseNumber(alive)
  return alive and { owner = owner, session = session(owner), alive = alive,
    permits = KEYS[4] and tonumber(size) or ALL, lease = tonumber(lease), nonce = nonce,
    sharded = sharded == '/', seen = seen == '+', info = info }
    or { owner = owner, session = session(owner), alive = 0 }
end

-- countSubscribers notes in the table `has` which of these channels have subscribers at this server. It notes
-- nothing if the user has no right to find out. It returns the table.
local function countSubscribers(has, names, sharded)
  local count = names[1] and redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', unpack(names)) or {}
  if not count.err then
    for i = 1, #count, 2 do
      has[count[i]] = count[i + 1] > 0
    end
  end
  return has
end

-- mayHaveQueue reports whether there may be a queue. If the hash was deleted by hand, that is not known.
local function mayHaveQueue(s)
  return s.queued > 0 or s.lives == 0
end

-- relevant returns the attempts that still matter to lookUp when q.first is known. These are the attempts of
-- the options, and attempts of other sessions than q.apart, of which second may be one.
local function relevant(owners, q, options)
  local rest, enough = {}, q.first and q.apart
  for _, owner in ipairs(owners) do
    local of = session(owner)
    if of ~= enough and of ~= options.but or owner == options.mine or owner == options.leaving then
      rest[#rest + 1] = owner
    end
  end
  return rest
end

-- readWaiters reads so many attempts of the queue, from an index on. It returns the attempts that matter to
-- lookUp, and the number that it has read. Each has the fields of the result of parseWaiter. The field
-- `subscribes` says that its session is not known to be without a subscription. q and options belong to
-- lookUp.
local function readWaiters(s, channels, from, size, q, options)
  local owners = mayHaveQueue(s) and redis.call('ZRANGE', KEYS[2], from, from + size - 1) or {}
  local count = #owners
  if size >= 64 then -- skips entries that cannot matter, which may be thousands
    owners = relevant(owners, q, options)
  end
  local entries = owners[1] and redis.call('HMGET', KEYS[3], unpack(owners)) or {}
  local found, names, shardedNames = {}, {}, {} -- the names are of channels
  for i, owner in ipairs(owners) do
    local w = parseWaiter(owner, entries[i])
    q.any, found[i] = q.any or entries[i], w
    if w.seen and w.session ~= options.but and w.session ~= options.asking then
      w.channel = channel(channels, w.session, w.sharded)
      local all = w.sharded and shardedNames or names
      all[#all + 1] = w.channel
    end
  end
  local own, sharded = nil, options.delivery == '2'
  -- If nobody is queued, mine is granted the permits that are unused, and needs no subscription.
  if from == 0 and options.mine and options.delivery ~= '0' and (options.noGrants or owners[1]) then
    own = channel(channels, session(options.mine), sharded)
    local all = sharded and shardedNames or names
    all[#all + 1] = own
  end
  local has = countSubscribers(countSubscribers({}, names, false), shardedNames, true)
  if own then
    q.isSubscribed = has[own]
  end
  for _, w in ipairs(found) do
    w.subscribes = not w.channel or has[w.channel] ~= false
  end
  return found, count
end

-- MAX_SERVED bounds how many waiters one request serves, so that other requests need not wait long.
local MAX_SERVED = 200

-- canServe reports whether a waiter can leave the queue while so many permits are unused. If it wants more
-- permits than there are, it leaves without a grant.
local function canServe(s, w, free)
  return w.permits <= free or w.permits > (s.limit or ALL)
end

-- placeWaiter adds the next waiter of the queue to q, the result of lookUp. It adds the waiter to q.served
-- while waiters can be served. After that, the waiter may become q.first, q.second or both. Two fields of q
-- are only for placeWaiter:
--   free    number of permits that neither the holders nor the waiters in served use; nil if nobody is to be
--           served
--   apart   the session from which second must differ; nil as long as waiters may be served
local function placeWaiter(s, q, w)
  if q.free and not q.apart and #q.served < MAX_SERVED and canServe(s, w, q.free) then
    q.served[#q.served + 1], q.remove[#q.remove + 1], w.isServed = w, w.owner, true
    if w.permits == s.limit then
      q.holder, q.apart = w, w.session
    elseif w.permits <= q.free then
      q.free = KEYS[4] ~= KEYS[1] and q.free - w.permits or 0
    end
    return
  end
  q.apart, q.first = q.apart or w.session, q.first or w
  if w.session ~= q.apart then
    q.second = q.second or w
  end
end

-- lookUp reads the queue from its head, as far as it must, and finds the waiters to serve and the next ones
-- behind them. It writes nothing. If the lock has no queue, it does not read the keys of the queue. All
-- options are optional:
--   mine      the attempt of this request, which lives even if its entry does not say so. If it is not in the
--             queue, it may be served behind the last waiter
--   permits, info   number of permits that mine wants, and its holder info
--   delivery  DELIVERY of mine
--   asking    the session of this request. It needs no subscription, because the reply notifies it
--   but       a session that is skipped
--   leaving   an attempt that is skipped
--   noGrants  nobody is to be served. Then second is not needed if first is of the session of mine
-- The fields of the result:
--   served    the waiters that serve must serve, in their order. There are enough permits for all of them, or
--             they want more than the limit
--   holder    the served waiter that gets all permits there are, as the holder of a lock does
--   first     the first waiter behind served that lives and has a subscription. A waiter whose connection
--             broke is skipped, and keeps its place. The attempt mine may be served although such a waiter
--             is in front of it. But if there is no holder and no first behind BATCH waiters, the first
--             waiter that was skipped counts as subscribed, unless `but` is given
--   second    the first such waiter of another session than holder. Without holder, of another one than first
--   missing   a waiter before first is dead, or its connection broke
--   remove    the dead and the served attempts, which must be removed from the queue
--   mine      the entry of mine. Its field isServed says that it is in served
--   isSubscribed   whether the session of mine has a subscription; nil if that is not known
--   any       an entry of a waiter was found
--   size      the number of attempts in the queue, including remove; nil if not known
local function lookUp(s, channels, options)
  local free = not options.noGrants and unused(s) or nil
  if free and s.owner and KEYS[4] == KEYS[1] then -- no further holder can be added
    free = 0
  end
  local q, at, passed, behind = { served = {}, remove = {}, free = free }, 0, nil, false
  local enough = options.noGrants and session(options.mine)
  local size = (s.owner or s.shared > 0) and free and free > 0 and 4 or 2 -- usually as many as are needed
  while not q.second and not (q.first and q.first.session == enough) and at - #q.remove < 2 * BATCH do
    local found, count = readWaiters(s, channels, at, size, q, options)
    for _, w in ipairs(found) do
      w.behind = behind
      if w.owner == options.mine then -- The entry may be missing
        q.mine, w.permits, w.info = w, options.permits, options.info
      end
      if w.owner == options.leaving then
        behind = true
      elseif w.alive < s.now and w.owner ~= options.mine then
        q.missing = q.missing or not q.first
        q.remove[#q.remove + 1] = w.owner
      elseif w.session == options.but then
        -- It is passed over.
      elseif not w.subscribes then
        q.missing, passed = q.missing or not q.first and w.owner ~= options.mine, passed or w
      else
        placeWaiter(s, q, w)
      end
    end
    at = at + count
    if count < size then
      q.size = at
      break
    end
    size = math.min(2 * size, BATCH)
  end
  if passed and not q.apart and not options.but and at - #q.remove >= BATCH then
    q.missing = true
    placeWaiter(s, q, passed)
  end
  if free and options.mine and not q.mine and q.size and not q.apart and options.permits <= q.free then
    q.mine = parseWaiter(options.mine)
    q.mine.permits, q.mine.info, q.mine.isServed = options.permits, options.info, true
    q.served[#q.served + 1] = q.mine
  end
  return q
end

-- removeFromQueue removes the attempts in q.remove from the queue, and keeps `queued` right. While a slot
-- moves to another node, a queue that this has emptied cannot be read or written again in the same script.
local function removeFromQueue(s, q)
  local gone = 0
  for i = 1, #q.remove, BATCH do -- Lua cannot pass on many thousands at once
    local last = math.min(i + BATCH - 1, #q.remove)
    gone = gone + redis.call('ZREM', KEYS[2], unpack(q.remove, i, last))
    redis.call('HDEL', KEYS[3], unpack(q.remove, i, last))
  end
  local empty = q.size and q.size <= gone
  if empty and s.queued > 0 then
    redis.call('HDEL', KEYS[1], 'queued')
    s.queued = 0
  elseif not empty and s.queued == 0 then -- the hash was deleted by hand, and not the queue
    s.queued = s.now
    set(s, s.now, 'queued', toString(s.now))
  end
end

-- enqueue puts the attempt of an acquire script, whose ARGV it reads, into the queue, or makes it live longer
-- there. q is the result of lookUp for this attempt.
local function enqueue(s, q)
  local me, liveness = ARGV[1], tonumber(ARGV[7])
  local alive, sharded = s.now + liveness * 1000, ARGV[10] == '2'
  local seen, mine = q.isSubscribed, q.mine
  if not seen then -- the mark stays, also of an attempt that is too far back for lookUp
    mine = mine or not q.size and parseWaiter(me, redis.call('HGET', KEYS[3], me))
    seen = mine and mine.seen and mine.sharded == sharded
  end
  if mine and mine.alive > 0 then -- a full server lets a waiter keep its place, but refuses new waiters
    redis.call('HDEL', KEYS[1], '')
  end
  redis.call('HSET', KEYS[3], me, table.concat({ toString(alive), ARGV[2], ARGV[4],
    ARGV[9] .. (sharded and '/' or '') .. (seen and '+' or ''), ARGV[5] }, ' '))
  local ticket = toString(math.max(s.ticket + 1, s.now))
  local added = redis.call('ZADD', KEYS[2], 'NX', ticket, me) == 1
  local longer = s.queued < alive or not q.any
  if longer then
    s.queued = s.now + 2 * liveness * 1000
    redis.call('PEXPIRE', KEYS[2], 2 * liveness)
    redis.call('PEXPIRE', KEYS[3], 2 * liveness)
  end
  if added or longer then
    set(s, s.now + 2 * liveness * 1000, 'queued', toString(s.queued), 'ticket',
      added and ticket or toString(s.ticket))
  end
  if added and q.size then
    q.size = q.size + 1
  end
end

-- publish sends words to the session of a waiter.
local function publish(channels, w, ...)
  -- Not every user may use SPUBLISH, and a server that replaces another may not have it.
  redis[w.sharded and 'pcall' or 'call'](w.sharded and 'SPUBLISH' or 'PUBLISH',
    channel(channels, w.session, w.sharded), table.concat({ w.owner, ... }, ' '))
end

-- tellNext notifies a waiter behind q.holder, the new holder, when the lease in ms ends. It is a waiter of
-- another session if possible, because the new holder's process may be frozen.
local function tellNext(channels, q, lease)
  local after = q.second or q.first
  if after then
    publish(channels, after, toString(lease)) -- without its nonce, or any subscriber would know that
  end
end

-- notifyHead notifies the first two sessions in the queue of the end of a lease, when they must send their
-- requests again. That is needed whenever the head of the queue changes while the lock stays taken. A waiter
-- is not notified if it sends a heartbeat before, because the reply says the same. The second session sends
-- its request SPARE_DELAY ms later than the first, in case the process of the first is frozen. holder is the
-- holder whose lease ends first.
--
-- A waiter is notified only if an attempt before it leaves, or if a waiter before the first is missing. Both
-- are always notified if `all` is given, or if nobody holds the lock because its hash was deleted by hand.
local function notifyHead(holder, channels, q, all)
  all = all or not holder.left
  local function notifyLeft(w, left)
    if w and holder.now + left * 1000 < w.alive and (all or w.behind or q.missing) then
      publish(channels, w, toString(left))
    end
  end
  notifyLeft(q.first, holder.left or 0)
  notifyLeft(q.second, (holder.left or 0) + SPARE_DELAY)
end

-- serve grants the lock, or its unused permits, to the waiters in q.served, and removes them from the queue.
-- Each gets the lease that it wants, but not a longer one than FIRST_LEASE, or than the time for which it is
-- known to live. (The attempt `mine` gets the whole lease.) The next waiters are notified when the first
-- lease ends. A waiter that wants more permits than there are is notified to send its request, whose reply
-- says so.
--
-- q is the result of lookUp with these options. They may have two more fields:
--   lease   the lease of the attempt `mine`, in ms
--   all     the next waiters must be notified, even if nobody is served
-- The rest are the fields `released` and `releaser` after a release. The first grant writes them, too, which
-- saves a command.
--
-- It returns the end of a reply, ' OWNER TOKEN LEASE' of each waiter that was served, and the token of
-- `mine`, or nil. For a lock with permits, the reply has only waiters of the session `asking`. The other
-- sessions are notified by messages.
local function serve(s, channels, q, options, ...)
  local reply, own, fields, all = '', nil, { ... }, options.all or q.served[1]
  for _, w in ipairs(q.served) do
    if w.permits > (s.limit or ALL) then
      publish(channels, w, '0')
    else
      local lease = w.owner == options.mine and options.lease
        or math.min(w.lease, math.ceil((w.alive - s.now) / 1000) + 1, FIRST_LEASE)
      local token = grant(s, w.owner, w.permits, w.info, lease, unpack(fields))
      fields = {}
      if w == q.holder then
        tellNext(channels, q, lease)
      end
      if w.owner == options.mine then
        own = token
      elseif w.session ~= options.asking then
        -- After tellNext, because Redis sends the last message of a script first.
        publish(channels, w, token, toString(s.now), toString(lease), w.nonce)
      end
      if w.owner ~= options.mine and (w.session == options.asking or not KEYS[4]) then
        reply = table.concat({ reply, w.owner, token, toString(lease) }, ' ')
      end
    end
  end
  if fields[1] then
    set(s, s.now, 'token', toString(s.last), unpack(fields))
  end
  removeFromQueue(s, q)
  if q.first and not q.holder then
    if canServe(s, q.first, unused(s)) then -- by another request
      publish(channels, q.first, '0')
    end
    if all or q.missing or not options.mine then
      removeDropped(s)
      notifyHead(firstHolderToEnd(s), channels, q, all)
    end
  end
  return reply, own
end

-- sessionToSkip returns the session that is passed over when a lease ends. That is the holder's session,
-- which may be frozen, unless it has unlocked.
local function sessionToSkip(holder)
  return holder.owner and string.sub(holder.owner, -1) ~= '~' and session(holder.owner) or nil
end

-- replyFlags returns the flags of the reply to the session in `asking`. q is the result of lookUp for its
-- attempt.
--   B   another session sends a request when the lease ends
--   S   another session does so, and this one SPARE_DELAY ms later
--   D   this server has no subscriber to the channel of the session, which must be notified here
--   P   the session may be notified by SPUBLISH
local function replyFlags(asking, channels, delivery, q)
  local behind = ''
  if q.first and q.first.session ~= asking then
    behind = q.second and q.second.session ~= asking and 'B' or 'S'
  end
  return behind .. (q.isSubscribed == false and 'D' or '') ..
    (delivery ~= '1' and sharding('auto', channel(channels, asking, true)) and 'P' or '')
end

-- mayLinger decides whether the session of an acquire script, whose ARGV it reads, may keep the lock while no
-- goroutine has it. The session must have a subscription, and no other session may have been refused the lock
-- for that reason in the last ARGV[11] µs. It returns the decision, and the flags of the reply. These
-- are K if the session may, and the result of replyFlags.
local function mayLinger(now)
  local asking, delivery, isSubscribed = session(ARGV[1]), ARGV[10], nil
  if delivery ~= '0' then
    local name = channel(ARGV[8], asking, delivery == '2')
    isSubscribed = countSubscribers({}, { name }, delivery == '2')[name]
  end
  local said = replyFlags(asking, ARGV[8], delivery, { isSubscribed = isSubscribed })
  local at = parseNumber(redis.call('HGET', KEYS[1], 'refused') or '')
  if isSubscribed == false or at and math.abs(now - at) < tonumber(ARGV[11]) then
    return false, said
  end
  return true, 'K' .. said
end

-- notifyKeeper notifies the session of a holder, which may keep the lock while no goroutine has it, that
-- another session wants the lock. It notes the time.
local function notifyKeeper(s, owner, channels, lingers)
  redis.pcall('HSET', KEYS[1], 'refused', toString(s.now))
  publish(channels, { owner = owner, session = session(owner), sharded = lingers == '2' })
end

-- notifyKeepers calls notifyKeeper for all holders that may keep the lock, except holders of the session
-- `asking`. It notifies MAX_SERVED further holders at most. The next request that is refused notifies more.
local function notifyKeepers(s, asking, channels)
  if s.lingers and session(s.owner) ~= asking then
    redis.call('HDEL', KEYS[1], 'lingers')
    notifyKeeper(s, s.owner, channels, s.lingers)
  end
  local all, notified, rest = s.shared > 0 and redis.call('HMGET', KEYS[1], 'lingerers')[1]
    and redis.call('HGETALL', KEYS[1]) or {}, 0, false
  if all[1] then
    redis.call('HDEL', KEYS[1], '') -- a full server accepts the next writes then
  end
  for i = 1, #all, 2 do
    local owner = string.match(all[i], '^held (%S+)$')
    local lingers = owner and select(3, parseShare(owner, all[i + 1]))
    if lingers and (notified == MAX_SERVED or session(owner) == asking) then
      rest = true
    elseif lingers then
      local share = readShare(s, owner, all[i + 1])
      notifyKeeper(s, owner, channels, share.lingers)
      share.lingers, notified = nil, notified + 1
      writeShare(s, owner, share)
    end
  end
  if all[1] and not rest then
    redis.call('HDEL', KEYS[1], 'lingerers')
  end
end
