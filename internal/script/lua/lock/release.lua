-- Ends an attempt: it leaves the queue, and releases the lock if it holds it. A lock that is free then is
-- granted to the first waiter that lives and has a subscription. With ARGV[7], a lock that is released stays
-- taken for a time. Its owner field changes, so that no request of the attempt can change it any more.
--
-- Sending the request again is harmless: an attempt that has ended holds nothing.
--
-- KEYS      see internal/script/lua/queue.lua. Without the last two, the request fails with TRYAGAIN if they
--           are needed. While a slot moves to another node, a Cluster refuses requests for keys of which some
--           exist, and the queue often does not exist
-- ARGV[1]   owner field, SESSION:ATTEMPT
-- ARGV[2]   token of its grant; '': any. Whatever the attempt was granted ends. The reply depends on this
-- ARGV[3]   CHANNELS
-- ARGV[4]   KEEP
-- ARGV[5]   Redis time in µs until which a copy of the attempt's request may arrive, and must find that the
--           attempt has ended. 0: no copy is in flight
-- ARGV[6]   last token used of the grant's block, so that the rest of it can be granted. 0: no token was
--           used. '': not known, so the whole block counts as used
-- ARGV[7]   if it is there: ms for which the lock stays taken
--
-- Replies
--   R   released, by this request or an earlier copy of it
--   L   lost: it is not held under this token, and never was released
--   Behind both, ' OWNER TOKEN LEASE' of the waiter that the lock was handed over to, for LEASE ms

local now, stamped = clock()
local call, owner, token = redis.call, ARGV[1], ARGV[2]
-- The common case: the attempt holds the lock, nobody waits, and no copy of its request is in flight.
local held = call('HMGET', KEYS[1], 'owner', 'ends', 'token', 'queued', 'floor')
if held[1] == owner and held[3] == token and not held[4] and not held[5] and ARGV[5] == '0' and ARGV[6] ~= ''
    and not ARGV[7] and string.find(held[2] or '', '^%d+$') and tonumber(held[2]) > now then
  local used = ARGV[6] == '0' and token or ARGV[6]
  call('HDEL', KEYS[1], 'owner', 'lingers')
  call('HSET', KEYS[1], 'token', used, 'released', used, 'releaser', owner)
  return 'R'
end
local s = read(owner, now, ARGV[4])
local mine = s.owner == owner
if not KEYS[2] and (not mine or s.queued > 0) then
  return redis.error_reply('TRYAGAIN the queue may be needed')
end
-- Any grant of the attempt ends. Under another token than the present one, the whole block counts as used,
-- and the lock does not stay taken.
local matches = mine and (token == '' or token == s.token)
local reply = (matches or not mine and token ~= '' and released(token)) and 'R' or 'L'
local stays, q, handed = matches and ARGV[7], nil, nil
-- The attempt is in the queue, unless it holds the lock or the hash was deleted. The queue is read before the
-- first write, since somebody may have damaged it.
if s.queued > 0 or not mine and s.lives == 0 then
  q = lookUp(s, ARGV[3], { leaving = owner, but = not mine and s.owner and lookout(s),
    asking = not stays and (mine or not s.owner) and session(owner) })
  -- The reply notifies this session only if it is granted the lock. If the lock stays taken, it needs a
  -- subscription as any other session does.
end
call('HDEL', KEYS[1], '') -- a server that is full takes what follows then, and a replica refuses this
if s.former == owner then -- otherwise a clock that is set back would give its lease to it again
  call('HDEL', KEYS[1], 'owner', 'lingers')
end
if mine then
  local used, most = tonumber(ARGV[6]), tonumber(s.token) + BLOCK - 1
  if not used or not matches or token == '' and used ~= 0 and used < most then
    used = most
  end
  s.last, s.lost = math.max(used, s.granted), nil
  local last = stamp(s.last)
  call('HDEL', KEYS[1], 'owner', 'lingers', 'floor')
  if stays then
    s.owner, s.left = owner .. '~', math.max(1, tonumber(ARGV[7]))
    s.ends = now + s.left * 1000
    set(s, s.ends, 'owner', s.owner, 'ends', stamp(s.ends), 'token', last, 'released', last,
      'releaser', owner)
    if q then
      handOn(s, ARGV[3], q, true)
      leave(s, q)
    end
  else
    s.owner = nil
    if q then
      handed = handOver(s, session(owner), ARGV[3], q, 'released', last, 'releaser', owner)
    end
    if not handed then
      set(s, now, 'token', last, 'released', last, 'releaser', owner)
      if q then
        leave(s, q)
      end
    end
  end
elseif q and s.owner then
  handOn(s, ARGV[3], q)
  leave(s, q, owner)
elseif q then
  q.dead[#q.dead + 1] = owner
  handed = handOver(s, session(owner), ARGV[3], q)
  if not handed then
    leave(s, q)
  end
end
bury(s, owner, ARGV[5])
return reply .. (handed or '')
