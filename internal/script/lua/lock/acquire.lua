-- Requests the lock, or some of its permits, for an attempt. A free lock or unused permits are granted in the
-- order of the queue. If the attempt is not in the queue yet, its turn is after all waiters. Waiters that are
-- dead, or that have lost their subscription, are skipped. If the attempt gets nothing, it waits in the queue
-- or, with ARGV[7] = 0, is refused.
--
-- Sending the request again is harmless. A holder gets its token again, and its lease lasts for at least
-- ARGV[4] ms from now. A waiter keeps its place, and counts as alive for ARGV[7] ms from now.
--
-- KEYS      see internal/script/lua/queue.lua
-- ARGV[1]   owner field, SESSION:ATTEMPT
-- ARGV[2]   number of goroutines that wait with this attempt. For a lock with permits, the number of permits
--           that the attempt wants
-- ARGV[3]   Redis time in µs after which this request is void
-- ARGV[4]   lease in ms that the attempt wants
-- ARGV[5]   holder info, see internal/script/lua/lock.lua
-- ARGV[6]   KEEP, see internal/script/lua/lock.lua
-- ARGV[7]   ms for which a waiting attempt counts as alive. 0 means that the attempt does not wait
-- ARGV[8]   CHANNELS, see internal/script/lua/queue.lua
-- ARGV[9]   nonce, which the message of a grant contains, so that no other client can forge such a message
-- ARGV[10]  DELIVERY, see internal/script/lua/queue.lua
-- ARGV[11]  '' or missing if the session does not want to keep the lock while no goroutine has it. Otherwise
--           a time in µs. The session may then keep the lock if nobody waits, and mayLinger in queue.lua
--           returns true. That function returns false if the field `refused` is a time less than ARGV[11]
--           µs ago
-- Only for a lock with permits:
-- ARGV[12]  the limit that the caller expects. It becomes the limit if Redis has none
-- ARGV[13]  owner field of a holder of this session, or ''. If the lease of this holder has not ended, and
--           there are no waiters, the script extends this lease, and the attempt gets no grant
--
-- Replies (NOW is the Redis time in µs)
--   G NOW TOKEN             granted, by this request or an earlier copy of it. The G may be followed,
--                           without a space, by the flags that mayLinger in queue.lua returns
--   K NOW                   the lease of the holder ARGV[13] was extended
--   Q NOW LEFT OWNER TOKEN  held by OWNER, whose lease ends in LEFT ms. The second line of the reply is the
--                           holder info of OWNER. If several holders share the lock, OWNER is the holder
--                           whose lease ends first. If nobody holds the lock, but others wait for it, OWNER
--                           is '-'. The Q may be followed, without a space, by the flags that replyFlags in
--                           queue.lua returns
--   N NOW LIMIT             refused, because the attempt wants more permits than LIMIT, or because LIMIT
--                           differs from ARGV[12] and was not set by limit.lua. LIMIT is the limit in Redis
--                           or, if Redis has none, ARGV[12]
--   V NOW                   void, because the request arrived too late
--   S NOW                   stale, because this attempt has already ended
-- For a lock with permits, the first line of a reply G, Q or N ends with ' OWNER TOKEN LEASE' for each other
-- attempt of this session to which this request has granted permits

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
local me, lease, keep, token, alone = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6]), nil, true
local wanted, quiet = KEYS[4] and tonumber(ARGV[2]) or ALL, ARGV[11] ~= '' and ARGV[11]
local call = redis.call -- looked up once, which saves time
-- In the common case, nobody holds the lock or waits for it, and the last grant was released.
local known = KEYS[4] and call('HMGET', KEYS[1], 'owner', 'token', 'released', 'releaser', 'queued', 'lives',
    me, 'shared', 'limit', 'limiter', 'floor')
  or call('HMGET', KEYS[1], 'owner', 'token', 'released', 'releaser', 'queued', 'lives', me)
local expiry = string.find(known[6] or '', '^%d+$') and tonumber(known[6]) or 0
local limited = KEYS[4] and (wanted > (tonumber(known[9] or ARGV[12]) or 0)
  or known[9] and known[9] ~= ARGV[12] and not known[10])
if not known[1] and known[2] == known[3] and known[4] ~= me and not known[5] and not known[7] and not known[8]
    and not known[11] and not limited and now > (tonumber(known[2] or now) or now)
    and expiry >= now + (lease + keep) * 1000 and expiry < MAX_NUMBER then
  token = stamped
  local ends = string.format('%.0f', now + lease * 1000)
  if KEYS[4] then
    call('HSET', KEYS[1], 'owner', me, 'ends', ends, 'token', token, 'count', '1', 'change', '0',
      'info', ARGV[5], 'permits', ARGV[2], 'limit', known[9] or ARGV[12])
  else
    call('HSET', KEYS[1], 'owner', me, 'ends', ends, 'token', token, 'count', '1', 'change', '0',
      'info', ARGV[5])
  end
end
if token and not quiet then
  return 'G ' .. stamped .. ' ' .. token
end
local s = not token and read(me, now, keep)
if s then
  s.limit = known[9] and s.limit or tonumber(ARGV[12] or ALL)
  local held, joins = grantOf(s, me), KEYS[4] and ARGV[13]
  if held then
    extendLease(s, me, held, now + lease * 1000)
    return 'G ' .. stamped .. ' ' .. held.token
  end
  if s.over then
    return onMaster('S ' .. stamped)
  end
  held = joins and joins ~= '' and s.queued == 0 and grantOf(s, joins)
  if held then
    extendLease(s, joins, held, now + lease * 1000)
    return 'K ' .. stamped
  end
  local options = { asking = session(me), mine = me, delivery = ARGV[10], lease = lease, permits = wanted,
    info = ARGV[5] }
  local waits, enqueued, q, served = tonumber(ARGV[7]) > 0, false, nil, ''
  dropExpired(s)
  if limited then
    if mayHaveQueue(s) then -- the attempt may be in the queue since before the limit was set
      options = { asking = session(me), leaving = me }
      q = lookUp(s, ARGV[8], options)
      q.remove[#q.remove + 1] = me
      served = serve(s, ARGV[8], q, options)
      removeDropped(s)
    end
    return onMaster(table.concat({ 'N', stamped, toString(s.limit) }, ' ') .. served)
  end
  if unused(s) > 0 then
    q = lookUp(s, ARGV[8], options)
    -- The attempt joins the queue before serve is called. Otherwise serve could empty the queue, and then the
    -- script might not be allowed to write to the queue, see removeFromQueue.
    if waits and q.remove[1] and not (q.mine and q.mine.isServed) then
      enqueue(s, q)
      enqueued = true
    end
    served, token = serve(s, ARGV[8], q, options)
    alone = s.queued == 0
  end
  removeDropped(s)
  if not token then
    local said, holder = '', firstHolderToEnd(s)
    if waits then
      q = lookUp(s, ARGV[8], { but = sessionToSkip(holder), mine = me, permits = wanted, delivery = ARGV[10],
        noGrants = true })
      if not enqueued then
        enqueue(s, q)
      end
      removeFromQueue(s, q)
      said = replyFlags(session(me), ARGV[8], ARGV[10], q)
      if q.missing and q.first and q.first.session ~= session(me) then
        notifyHead(holder, ARGV[8], { first = q.first, missing = true })
      end
    end
    notifyKeepers(s, session(me), ARGV[8])
    if not waits then -- the script may have written nothing, so nothing has shown that this is a master
      onMaster()
    end
    return table.concat({ 'Q' .. said, stamped, toString(holder.left or 0), holder.owner or '-',
      holder.token or '0' }, ' ') .. (KEYS[4] and served or '') .. '\n' .. (holder.info or '')
  end
  token = token .. (KEYS[4] and served or '')
end
local may, said = false, ''
if quiet and alone then
  may, said = mayLinger(now)
end
if may and s and s.owner ~= me then
  local share = readShare(s, me)
  share.lingers = ARGV[10]
  writeShare(s, me, share, 'lingerers', '1')
elseif may then
  call('HSET', KEYS[1], 'lingers', ARGV[10])
end
return 'G' .. said .. ' ' .. stamped .. ' ' .. token
