-- Ends an attempt. The attempt leaves the queue, and releases the lock or its permits if it holds any. The
-- lock or the permits are then granted to waiters in the order of the queue. Waiters that are dead, or that
-- have lost their subscription, are skipped.
--
-- With ARGV[7], the lock or the permits stay taken for a time. The owner field then changes, so that no later
-- request of the attempt can end or extend this time.
--
-- With ARGV[8], the holder keeps some of its permits. A writer downgrades to a reader by such a request.
--
-- Sending the request again is harmless, because an attempt that has ended holds nothing.
--
-- KEYS      see internal/script/lua/queue.lua. While a slot moves to another node, a Cluster refuses a
--           request if only some of its keys exist. Often only KEYS[1] exists. So after such a refusal, the
--           next copy of the request names only KEYS[1]. If the script needs more keys, it fails with
--           TRYAGAIN
-- ARGV[1]   owner field, SESSION:ATTEMPT
-- ARGV[2]   token of the grant, or '' for any token. The grant of the attempt ends even if it has another
--           token. But then ARGV[7] is ignored, all tokens of its block count as used, and the reply is L. A
--           request with ARGV[8] changes nothing if the grant has another token
-- ARGV[3]   CHANNELS, see internal/script/lua/queue.lua
-- ARGV[4]   KEEP, see internal/script/lua/lock.lua
-- ARGV[5]   Redis time in µs until which a copy of the attempt's request may arrive. The copy must find that
--           the attempt has ended. 0 means that no copy is in flight
-- ARGV[6]   last token of the grant's block that was used. The tokens after it can then be granted to other
--           holders. 0 means that no token was used. '' means that the session does not know which token was
--           the last one, so the whole block counts as used
-- ARGV[7]   ms for which the lock or the permits stay taken. '' or missing if they do not stay taken
-- ARGV[8]   number of permits that a holder of ALL permits keeps. Missing if it keeps none
--
-- Replies
--   R   released, by this request or an earlier copy of it. (If an earlier copy has released the permits of a
--       further holder, the reply may be L instead)
--   L   lost, because the attempt does not hold the lock under this token, and has not released it
--   After R or L, ' OWNER TOKEN LEASE' follows for each waiter to which this request has granted the lock or
--   permits, with a lease of LEASE ms. For a lock with permits, only waiters of this session are named

local now, stamped = clock()
local call, owner, token = redis.call, ARGV[1], ARGV[2]
-- In the common case, the attempt holds the lock, nobody waits, and no copy of its request is in flight.
local held = call('HMGET', KEYS[1], 'owner', 'ends', 'token', 'queued', 'floor')
if held[1] == owner and held[3] == token and not held[4] and not held[5] and ARGV[5] == '0' and ARGV[6] ~= ''
    and not ARGV[7] and string.find(held[2] or '', '^%d+$') and tonumber(held[2]) > now then
  local used = ARGV[6] == '0' and token or ARGV[6]
  call('HDEL', KEYS[1], 'owner', 'lingers')
  call('HSET', KEYS[1], 'token', used, 'released', used, 'releaser', owner)
  return 'R'
end
local s = read(owner, now, ARGV[4])
if not KEYS[2] and (s.owner ~= owner or s.queued > 0 or s.shared > 0)
    or KEYS[4] == KEYS[1] and s.shared > 0 then
  return redis.error_reply('TRYAGAIN the other keys may be needed')
end
local mine = grantOf(s, owner)
local matches = mine and (token == '' or token == mine.token)
local lost = not mine and s.shared > 0 and readShare(s, owner) -- a grant of the attempt that has expired
local reply = (matches or not mine and not lost and token ~= '' and released(token)) and 'R' or 'L'
if ARGV[8] and (not matches or mine.permits ~= ALL) then -- after an earlier copy, permits is below ALL
  return onMaster(reply)
end
local stays = matches and (ARGV[7] or '') ~= '' and math.max(1, tonumber(ARGV[7]))
local rest = owner .. '~' -- the owner field while ARGV[7] keeps the lock taken
dropExpired(s)
local used = tonumber(ARGV[6])
if mine == s then
  local most = tonumber(s.token) + (s.permits == ALL and BLOCK - 1 or 0)
  if not used or not matches or token == '' and used ~= 0 and used < most then
    used = most
  end
  s.last, s.lost = math.max(used, s.granted), nil
  if ARGV[8] then
    s.permits = tonumber(ARGV[8])
  elseif stays then
    s.owner, s.left, s.ends = rest, stays, now + stays * 1000
  else
    s.owner = nil
  end
elseif mine then
  removeShare(s, owner, mine)
  if stays then
    mine.lingers, mine.ends, s.shared = nil, now + stays * 1000, s.shared + mine.permits
  end
end
-- The queue is read before the first write, because reading fails if somebody has damaged the queue. If the
-- attempt holds nothing, it may be in the queue. Then it is removed from the queue below.
local options = { leaving = owner, all = stays }
if unused(s) > 0 then
  options.asking = session(owner) -- the reply has the grants of this session
else
  local first = firstHolderToEnd(s) -- may be in s.gone, because removeDropped has not run since dropExpired
  options.but = not stays and not s.gone[first.owner or ''] and sessionToSkip(first) or nil
end
local q = lookUp(s, ARGV[3], options)
if not mine and mayHaveQueue(s) then
  q.remove[#q.remove + 1] = owner
end
local last, fields = toString(s.last), {}
-- A full server may refuse the first write of a script, but no later write, and no HDEL. So the first write
-- is an HDEL. If the attempt is the holder in `owner`, this HDEL is one of those further below. On a replica,
-- the HDEL fails, which ends the script.
if mine ~= s then
  call('HDEL', KEYS[1], '')
end
if not mine then
  removeExpired(s, owner)
elseif mine == s and ARGV[8] then
  call('HDEL', KEYS[1], 'lingers')
  set(s, s.ends, 'permits', ARGV[8])
  if last ~= s.token then
    call('HSET', KEYS[1], 'floor', last)
  end
elseif mine == s and stays then
  local ownToken = toString(math.max(tonumber(s.token), used)) -- last may be the token of a further holder
  call('HDEL', KEYS[1], 'lingers')
  if ownToken == last then
    call('HDEL', KEYS[1], 'floor')
  end
  set(s, s.ends, 'owner', rest, 'ends', toString(s.ends), 'token', ownToken, 'released', ownToken,
    'releaser', owner)
elseif mine == s then
  call('HDEL', KEYS[1], 'owner', 'lingers', 'floor')
  fields = { 'released', last, 'releaser', owner }
elseif stays then
  writeShare(s, rest, mine)
  setShareLease(s, rest, mine.ends)
end
local handed = serve(s, ARGV[3], q, options, unpack(fields))
removeDropped(s)
writeTombstones(s, { owner }, ARGV[5])
return reply .. handed
