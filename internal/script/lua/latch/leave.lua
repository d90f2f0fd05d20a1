-- Ends the lease of a party that does not count down. A lease that has already ended stays as it is, because
-- waiters may already have noticed the end.
--
-- Sending the request again is harmless, because the lease has ended.
--
-- ARGV[1] id of the request by which the party joined
-- ARGV[2] name of the party
-- ARGV[3] 0 if the party has joined and gives up. Then its lease ends now, and waiters are notified. If the
--         session does not know whether the party has joined, ARGV[3] is the Redis time in µs after which the
--         join request is void. The script then removes the party as if it had never joined. But if the party
--         has replaced a dead one, its lease ends now, so waiters again find that a party of this name died
--
-- Reply: 'L NOW'

onMaster() -- begins with an HDEL, after which a full server accepts the writes below
local now, stamped = clock()
local till, id, replaces = leaseOf(ARGV[2])
-- A copy of the join request that arrives later must not join, so the reply X to this copy is stored now. If
-- no latch wrote the hash, the copy fails in any case, so nothing is stored in the hash.
if now <= tonumber(ARGV[3]) and not foreignField(redis.call('HGET', KEYS[1], 'w')) then
  remember(ARGV[1], tonumber(ARGV[3]), 'X')
end
if id ~= ARGV[1] or till <= now then
  return 'L ' .. stamped
end
if ARGV[3] == '0' or replaces == ' R' then
  redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], stamped .. ' ' .. id .. replaces)
  redis.call('HDEL', KEYS[1], 'f')
  redis.call('PUBLISH', KEYS[1], 'L ' .. (redis.call('HGET', KEYS[1], 'r') or '') .. ' 0')
else
  local parties = parseNumber(redis.call('HGET', KEYS[1], 'q') or '') or 1
  redis.call('HSET', KEYS[1], 'q', toString(math.max(parties - 1, 0)))
  redis.call('HDEL', KEYS[1], 'p:' .. ARGV[2])
end
return 'L ' .. stamped
