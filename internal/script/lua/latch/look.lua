-- Returns the state of a run. If this is the current run, its lifetime starts again.
--
-- ARGV[1] id of the run, or '' for the current run
-- ARGV[2] the session's channel, or ''. It is '' if the session has no subscription, or if other servers may
--         have the subscription
--
-- Replies
--   R NOW COUNT LEFT FLAG RUN PARTY   the run has not ended. The first lease to end is the lease of PARTY,
--                                     which ends in LEFT ms. If PARTY has renewed its lease, LEFT may be too
--                                     short. LEFT is 0 if the lease of PARTY has ended, and -1 if there is
--                                     no lease. FLAG is D if this server has no subscriber to ARGV[2], and
--                                     otherwise '-'
--   Z NOW                             the count of the run reached 0, or ARGV[1] is '' and there is no run
--   D NOW                             the run was deleted
--   G NOW                             Redis does not know the run

onMaster()
local now, stamped = clock()
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q', 'f')
if ARGV[1] ~= '' and run[2] ~= ARGV[1] then
  return endOfRun(ARGV[1]) .. ' ' .. stamped
end
if not run[1] then
  checkIsLatch(redis.call('HGET', KEYS[1], 'w'))
  return 'Z ' .. stamped
end
local n = readNumber(KEYS[1], 'n', run[1])
local first, party
if run[4] ~= '0' then
  first, party = string.match(run[5] or '', '^(%d+) (.*)$')
  first = tonumber(first)
  if not first or first <= now and leaseOf(party) ~= first then
    first = nil
    local all = redis.call('HGETALL', KEYS[1]) -- slow, so later requests use the lease in f
    for i = 1, #all, 2 do
      local till = string.find(all[i], '^p:') and tonumber(string.match(all[i + 1], '^%d+'))
      if till and (not first or till < first) then
        first, party = till, string.sub(all[i], 3)
      end
    end
    if first then -- pcall, because the script must reply even if the server refuses writes
      redis.pcall('HSET', KEYS[1], 'f', toString(first) .. ' ' .. party)
    end
  end
end
keepAlive(run[3])
local left = first and toString(math.max(math.ceil((first - now) / 1000), 0)) or '-1'
local flag = ARGV[2] ~= '' and not subscribed(ARGV[2]) and 'D' or '-'
return table.concat({ 'R', stamped, toString(n), left, flag, run[2] or '', first and party or '' }, ' ')
