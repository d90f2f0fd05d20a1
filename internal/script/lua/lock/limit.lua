-- Sets the limit, which is the number of permits that all holders may have together. If the new limit leaves
-- permits unused, the waiters get them. If more permits are in use than the new limit allows, the holders
-- keep their permits. But sessions that may keep permits while no goroutine has them are notified. They then
-- release the permits that no goroutine has.
--
-- A copy of the request that arrives after ARGV[6] is void. With ARGV[2] = '0', any other copy sets the same
-- limit again, even if another request has set the limit meanwhile. With ARGV[2] = '1', a second copy changes
-- nothing, because Redis has a limit then.
--
-- KEYS      see internal/script/lua/queue.lua. If a request has only KEYS[1], but the script needs more keys,
--           the script fails with TRYAGAIN, see release.lua
-- ARGV[1]   the limit
-- ARGV[2]   '1': set the limit only if Redis has none. '0': set the limit in any case
-- ARGV[3]   CHANNELS, see internal/script/lua/queue.lua
-- ARGV[4]   KEEP, see internal/script/lua/lock.lua
-- ARGV[5]   id of the request, which all its copies have
-- ARGV[6]   Redis time in µs after which this request is void
--
-- Replies (NOW is the Redis time in µs)
--   S       set, by this request or an earlier copy of it
--   N       not set, because Redis already had a limit (only with ARGV[2] = '1')
--   V NOW   void, because the request arrived too late

local now, stamped = clock()
if now > tonumber(ARGV[6]) then
  return 'V ' .. stamped
end
local s, known = read('', now, ARGV[4]), redis.call('HMGET', KEYS[1], 'limit', 'limiter')
if ARGV[2] == '1' and known[1] then
  return onMaster(known[2] == ARGV[5] and 'S' or 'N')
end
if not KEYS[2] and (s.queued > 0 or s.shared > 0 or s.lives == 0) or KEYS[4] == KEYS[1] and s.shared > 0 then
  return redis.error_reply('TRYAGAIN the other keys are needed')
end
dropExpired(s)
s.limit = tonumber(ARGV[1])
local q = lookUp(s, ARGV[3], {}) -- before the first write, because lookUp fails if the queue is damaged
set(s, now, 'limit', ARGV[1], 'limiter', ARGV[5])
serve(s, ARGV[3], q, {})
if unused(s) < 0 then
  notifyKeepers(s, '', ARGV[3])
end
removeDropped(s)
return 'S'
