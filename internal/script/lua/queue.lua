-- The keys of a lock's waiters, and the functions that read and write these keys.
--
-- KEYS[1]   the lock's hash. The names of sharded channels contain this key without the session's prefix
-- KEYS[2]   the queue, a sorted set of the waiting attempts. The score of an attempt is its ticket. The
--           attempt with the lowest ticket is the first in the queue
-- KEYS[3]   the waiters, a hash: attempt -> 'ALIVE SIZE LEASE NONCE INFO'
--             ALIVE   Redis time in µs until which the attempt counts as alive. Each request of the attempt
--                     sets this time anew
--             SIZE    number of goroutines that wait with the attempt. For a lock with permits, the number
--                     of permits that the attempt wants
--             LEASE   lease in ms that the attempt wants
--             NONCE   random text. The message of a grant contains this text, so no other client can forge
--                     such a message. If a '/' follows, the session is notified by sharded pub/sub. If a '+'
--                     follows, this server has seen a subscription of the session at an earlier request. If
--                     the subscription is missing now, the session has ended, or its connection broke
--             INFO    holder info
--
-- Arguments of several scripts:
--   CHANNELS  prefix of the names of all session channels
--   DELIVERY  how the session is notified
--               '0'  by PUBLISH, if other servers may have its subscription
--               '1'  by PUBLISH, if only this server can have its subscription
--               '2'  by SPUBLISH, on the channel of the session for this lock

-- parseWaiter parses the entry of an attempt in KEYS[3]. If the entry is missing, or has another format than
-- described above, the result has only the fields owner and session, and alive = 0.
local function parseWaiter(owner, entry)
  local alive, size, lease, nonce, sharded, seen, info =
    string.match(entry or '', '^(%d+) (%d+) (%d+) ([^ /+]*)(/?)(%+?) (.*)$')
  alive = alive and parseNumber(alive)
  return alive and { owner = owner, session = session(owner), alive = alive,
    permits = KEYS[4] and tonumber(size) or ALL, lease = tonumber(lease), nonce = nonce,
    sharded = sharded == '/', seen = seen == '+', info = info }
    or { owner = owner, session = session(owner), alive = 0 }
end

-- For each of the channels `names`, countSubscribers sets has[name] to true if this server has a subscriber
-- to the channel, and otherwise to false. If the user may not call PUBSUB, countSubscribers sets nothing. It
-- returns `has`.
local function countSubscribers(has, names, sharded)
  local count = names[1] and redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', unpack(names)) or {}
  if not count.err then
    for i = 1, #count, 2 do
      has[count[i]] = count[i + 1] > 0
    end
  end
  return has
end

-- mayHaveQueue reports whether the lock may have a queue. If the hash is missing, it returns true, because
-- somebody may have deleted the hash without the queue.
local function mayHaveQueue(s)
  return s.queued > 0 or s.lives == 0
end

-- relevant returns the attempts in `owners` that matter to lookUp. It leaves out attempts of the session
-- options.but. When q.first is known, it also leaves out attempts of the session q.apart, because they cannot
-- become q.second. In both cases, it keeps the attempts options.mine and options.leaving.
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

-- readWaiters reads `size` attempts of the queue, from the index `from` on. It returns a list of attempts,
-- and the number of attempts that it read. The list may lack attempts that do not matter to lookUp, see
-- relevant. Each attempt in the list has the fields of the result of parseWaiter, and the field `subscribes`.
-- That field is false if the entry has a '+', but this server sees no subscription of the session now. It is
-- true for all attempts of the sessions options.asking and options.but. q and options are the same as in
-- lookUp. readWaiters sets the fields q.any and q.isSubscribed.
local function readWaiters(s, channels, from, size, q, options)
  local owners = mayHaveQueue(s) and redis.call('ZRANGE', KEYS[2], from, from + size - 1) or {}
  local count = #owners
  if size >= 64 then -- the queue is long, and most of its attempts may not matter
    owners = relevant(owners, q, options)
  end
  local entries = owners[1] and redis.call('HMGET', KEYS[3], unpack(owners)) or {}
  local found, names, shardedNames = {}, {}, {} -- names and shardedNames are names of channels
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
  -- q.isSubscribed stays nil if other servers may have the session's subscription (DELIVERY is '0'). Without
  -- noGrants, it also stays nil if nobody is queued. Then options.mine usually gets unused permits at once,
  -- and needs no notification. If options.mine gets none, acquire.lua calls lookUp again, with noGrants.
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

-- MAX_SERVED is the maximum number of waiters that one request serves. Without a maximum, other requests
-- could have to wait long, because Redis runs one script at a time.
local MAX_SERVED = 200

-- canServe reports whether `free` unused permits are enough for a waiter. It also returns true if the waiter
-- wants more permits than the limit, because such a waiter leaves the queue without a grant.
local function canServe(s, w, free)
  return w.permits <= free or w.permits > (s.limit or ALL)
end

-- placeWaiter adds w, the next waiter of the queue, to q, the result of lookUp. It adds w to q.served if w
-- and all waiters placed before w can be served. Otherwise w may become q.first, q.second or both. Two fields
-- of q are only used while lookUp runs:
--   free    number of permits that are left for the next waiter, after the holders and the waiters in
--           served; nil if lookUp must not serve anybody
--   apart   a session. The waiter in q.second must be of another session. While apart is nil, more waiters
--           may be served
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

-- lookUp reads the queue from its head, as far as necessary. It finds the waiters to serve, and the next
-- waiters behind them. It writes nothing. If the lock has no queue, it does not read the keys of the queue.
-- All options are optional:
--   mine      the attempt of this request, which always counts as alive. If it is not in the queue, it may
--             be served after the last waiter
--   permits, info   number of permits that mine wants, and its holder info
--   delivery  DELIVERY of the session of mine
--   asking    the session of this request. Its attempts need no subscription, because the reply contains
--             their grants
--   but       a session whose attempts are skipped, so that none of them becomes first or second
--   leaving   an attempt that is skipped, because it leaves the queue by this request
--   noGrants  if true, nobody is served. As soon as first is known, and is of the session of mine, lookUp
--             stops without looking for second
-- The fields of the result:
--   served    the waiters to which the function serve must grant permits, in this order. There are enough
--             permits for all of them. A waiter that wants more permits than the limit is also in the list,
--             but gets none
--   holder    the waiter in served that gets all permits of the limit; nil if there is no such waiter
--   first     the first waiter behind served that is alive and has a subscription. A waiter whose connection
--             broke is skipped, but keeps its place. The attempt mine may be served before such a waiter.
--             If lookUp has read at least BATCH attempts that are not in remove, and has found neither holder
--             nor first, it treats the first waiter whose connection broke as if it had a subscription. This
--             waiter is then served, or becomes first. With the option `but`, lookUp does not do this
--   second    a waiter like `first`, but of another session than the waiter in `holder`. So second may be the
--             same waiter as first. If `holder` is nil, second is of another session than the waiter in first
--   missing   true if one of the waiters before first is dead, or its connection broke. If there is no first,
--             these are all waiters that lookUp has read
--   remove    the dead and the served attempts, which the caller must remove from the queue
--   mine      the result of parseWaiter for the attempt mine; nil if lookUp has neither found nor served the
--             attempt. The field isServed of this result is true if the attempt is in served
--   isSubscribed   true if the session of mine has a subscription, false if not; nil if that is not known
--   any       nil or false if KEYS[3] has no entry of the attempts that lookUp read. Then KEYS[3] may be
--             missing, and enqueue sets its expiry
--   size      the number of attempts in the queue, including the attempts in remove; nil if lookUp has not
--             read the queue to its end
local function lookUp(s, channels, options)
  local free = not options.noGrants and unused(s) or nil
  if free and s.owner and KEYS[4] == KEYS[1] then -- so the request cannot add a further holder
    free = 0
  end
  local q, at, passed, behind = { served = {}, remove = {}, free = free }, 0, nil, false
  local enough = options.noGrants and session(options.mine)
  local size = (s.owner or s.shared > 0) and free and free > 0 and 4 or 2 -- more attempts are rarely needed
  while not q.second and not (q.first and q.first.session == enough) and at - #q.remove < 2 * BATCH do
    local found, count = readWaiters(s, channels, at, size, q, options)
    for _, w in ipairs(found) do
      w.behind = behind
      if w.owner == options.mine then -- the entry may be missing, so options has these two values
        q.mine, w.permits, w.info = w, options.permits, options.info
      end
      if w.owner == options.leaving then
        behind = true
      elseif w.alive < s.now and w.owner ~= options.mine then
        q.missing = q.missing or not q.first
        q.remove[#q.remove + 1] = w.owner
      elseif w.session == options.but then
        -- Skip this waiter.
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

-- removeFromQueue removes the attempts in q.remove from the queue, and updates the field `queued`. If the
-- queue is empty after that, the script must not read or write the queue again. Its keys do not exist any
-- more. While their slot moves to another node, Redis refuses access to such keys, and the script would fail.
local function removeFromQueue(s, q)
  local gone = 0
  for i = 1, #q.remove, BATCH do -- Lua cannot pass many thousands of arguments
    local last = math.min(i + BATCH - 1, #q.remove)
    gone = gone + redis.call('ZREM', KEYS[2], unpack(q.remove, i, last))
    redis.call('HDEL', KEYS[3], unpack(q.remove, i, last))
  end
  local empty = q.size and q.size <= gone
  if empty and s.queued > 0 then
    redis.call('HDEL', KEYS[1], 'queued')
    s.queued = 0
  elseif not empty and s.queued == 0 then -- somebody deleted the hash, but not the queue
    s.queued = s.now
    set(s, s.now, 'queued', toString(s.now))
  end
end

-- enqueue adds the attempt of acquire.lua to the queue. If the attempt is already in the queue, the attempt
-- keeps its place, and enqueue extends the time for which the attempt counts as alive. enqueue reads the ARGV
-- of acquire.lua. q is the result of lookUp for this attempt.
local function enqueue(s, q)
  local me, liveness = ARGV[1], tonumber(ARGV[7])
  local alive, sharded = s.now + liveness * 1000, ARGV[10] == '2'
  local seen, mine = q.isSubscribed, q.mine
  -- If the entry already has a '+', the '+' stays, although this request has seen no subscription. If lookUp
  -- has not read as far as this attempt, the entry is read here.
  if not seen then
    mine = mine or not q.size and parseWaiter(me, redis.call('HGET', KEYS[3], me))
    seen = mine and mine.seen and mine.sharded == sharded
  end
  -- A full server may refuse the first write of a script, but no later write, and no HDEL. This HDEL lets a
  -- waiter keep its place. There is no HDEL for a new waiter, which a full server must refuse.
  if mine and mine.alive > 0 then
    redis.call('HDEL', KEYS[1], '')
  end
  redis.call('HSET', KEYS[3], me, table.concat({ toString(alive), ARGV[2], ARGV[4],
    ARGV[9] .. (sharded and '/' or '') .. (seen and '+' or ''), ARGV[5] }, ' '))
  local ticket = toString(math.max(s.ticket + 1, s.now))
  local added = redis.call('ZADD', KEYS[2], 'NX', ticket, me) == 1
  local longer = s.queued < alive or not q.any
  if longer then
    s.queued = s.now + 2 * liveness * 1000
    redis.call('PEXPIRE', KEYS[2], toString(2 * liveness))
    redis.call('PEXPIRE', KEYS[3], toString(2 * liveness))
  end
  if added or longer then
    set(s, s.now + 2 * liveness * 1000, 'queued', toString(s.queued), 'ticket',
      added and ticket or toString(s.ticket))
  end
  if added and q.size then
    q.size = q.size + 1
  end
end

-- publish publishes a message on the channel of a waiter's session. The message has the owner field of the
-- waiter, and the variadic arguments, which are words.
local function publish(channels, w, ...)
  -- SPUBLISH is called by pcall, because the user may have no right to SPUBLISH, or a server of an older
  -- version, without SPUBLISH, may have taken over.
  redis[w.sharded and 'pcall' or 'call'](w.sharded and 'SPUBLISH' or 'PUBLISH',
    channel(channels, w.session, w.sharded), table.concat({ w.owner, ... }, ' '))
end

-- notifyNext notifies a waiter behind q.holder, the new holder, that the holder's lease ends in `lease` ms.
-- The waiter then sends its request again. If possible, notifyNext chooses a waiter of another session than
-- the holder's, because the process of the holder may be frozen.
local function notifyNext(channels, q, lease)
  local after = q.second or q.first
  if after then
    publish(channels, after, toString(lease)) -- without the nonce, which stays secret until a grant
  end
end

-- notifyHead notifies the waiters q.first and q.second, which are of different sessions, of the time in ms
-- until the lease of `holder` ends. Of all leases, this one ends first. When the lease ends, the waiter
-- q.first must send its request again. The waiter q.second does so SPARE_DELAY ms later, in case the process
-- of the other waiter is frozen. notifyHead must be called whenever the head of the queue changes while the
-- lock stays taken.
--
-- A waiter is not notified if the lease ends after the time until which the waiter counts as alive. Such a
-- waiter must send a heartbeat before the lease ends, and the reply contains the end of the lease. Otherwise
-- a waiter is notified if one of these conditions holds:
--   - an attempt before the waiter leaves the queue;
--   - q.missing is true;
--   - `all` is true;
--   - nobody holds the lock, for example because its hash was deleted by hand. Then the time is 0 ms.
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

-- serve grants the lock, or its unused permits, to the waiters in q.served, and removes these waiters from
-- the queue. The attempt `mine` gets the lease options.lease. Any other waiter gets the lease that it wants,
-- but at most FIRST_LEASE, and not much more than the time for which the waiter still counts as alive. If a
-- waiter wants more permits than the limit, serve notifies the waiter that it must send its request again.
-- The reply to that request is a refusal.
--
-- At most two waiters that stay in the queue are notified of the end of a lease. If q.holder got the grant,
-- notifyNext does this, and otherwise notifyHead, for the lease that ends first.
--
-- q is the result of lookUp with these options. The options may have two more fields:
--   lease   the lease of the attempt `mine`, in ms
--   all     if true, notifyHead notifies q.first and q.second even if nobody is served
-- The variadic arguments are fields of the hash that a release must set. The first grant writes them together
-- with its own fields, which saves a command. If there is no grant, serve writes them by themselves.
--
-- serve returns two values. The first is the end of a reply: ' OWNER TOKEN LEASE' for each waiter that got a
-- grant, except `mine`. For a lock with permits, the first value contains only waiters of the session
-- `asking`. The second value is the token of `mine`, or nil. Served waiters of sessions other than `asking`
-- are notified by messages.
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
        notifyNext(channels, q, lease)
      end
      if w.owner == options.mine then
        own = token
      elseif w.session ~= options.asking then
        -- This message is published after the message of notifyNext. Redis sends the last message of a script
        -- first, so the new holder is notified first.
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
    if canServe(s, q.first, unused(s)) then -- q.first can be served, but only by another request
      publish(channels, q.first, '0')
    end
    if all or q.missing or not options.mine then
      removeDropped(s)
      notifyHead(firstHolderToEnd(s), channels, q, all)
    end
  end
  return reply, own
end

-- sessionToSkip returns the holder's session. When the lease of the holder ends without a release, the
-- process of this session may be frozen, so other sessions must send requests. The result is nil if there is
-- no holder, or if the holder has unlocked and the lock only stays taken.
local function sessionToSkip(holder)
  return holder.owner and string.sub(holder.owner, -1) ~= '~' and session(holder.owner) or nil
end

-- replyFlags returns the flags of the reply to an attempt of the session `asking`. q is the result of lookUp
-- for this attempt.
--   B   when the lease ends, two other sessions send requests, so this session need not send one
--   S   when the lease ends, another session sends a request, and this session sends one SPARE_DELAY ms later
--   D   this server has no subscriber to the session's channel, so it could not notify the session
--   P   the session may be notified by SPUBLISH
local function replyFlags(asking, channels, delivery, q)
  local behind = ''
  if q.first and q.first.session ~= asking then
    behind = q.second and q.second.session ~= asking and 'B' or 'S'
  end
  return behind .. (q.isSubscribed == false and 'D' or '') ..
    (delivery ~= '1' and sharding('auto', channel(channels, asking, true)) and 'P' or '')
end

-- mayLinger decides whether the session of the request may keep the lock while no goroutine has it. It reads
-- the ARGV of acquire.lua. The first result is true, except in two cases. The session is known to have no
-- subscription, or the field `refused` of the hash is a time less than ARGV[11] µs ago. The second result has
-- the flags of the reply: K if the first result is true, and the result of replyFlags.
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

-- notifyKeeper notifies the session of a holder that another session wants the lock. The holder's session
-- then releases the lock, at once or with the last Unlock. notifyKeeper also writes the present Redis time to
-- the field `refused`. For a while after that time, mayLinger does not let a session keep the lock.
local function notifyKeeper(s, owner, channels, lingers)
  redis.pcall('HSET', KEYS[1], 'refused', toString(s.now))
  publish(channels, { owner = owner, session = session(owner), sharded = lingers == '2' })
end

-- notifyKeepers calls notifyKeeper for all holders that may keep the lock while no goroutine has it, except
-- holders of the session `asking`. It also removes the mark by which such a holder may keep the lock, which
-- is `lingers` or LINGERS. It notifies at most MAX_SERVED further holders. The next request that is refused
-- notifies more of them.
local function notifyKeepers(s, asking, channels)
  if s.lingers and session(s.owner) ~= asking then
    redis.call('HDEL', KEYS[1], 'lingers')
    notifyKeeper(s, s.owner, channels, s.lingers)
  end
  local all, notified, rest = s.shared > 0 and redis.call('HMGET', KEYS[1], 'lingerers')[1]
    and redis.call('HGETALL', KEYS[1]) or {}, 0, false
  if all[1] then -- after an HDEL, a full server does not refuse the writes of notifyKeeper and writeShare
    redis.call('HDEL', KEYS[1], '')
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
