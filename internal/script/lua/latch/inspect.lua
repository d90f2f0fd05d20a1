-- Returns the count and the parties of the current run. It changes nothing, not even the lifetime.
--
-- Reply
--   I NOW COUNT {NAME: LEASE, ...}   COUNT is 0 if there is no run. NAME and LEASE are of each party that has
--                                    joined and not counted. LEASE is the Redis time in µs at which its lease
--                                    ends, and the id of its join request

lookOnMaster()
local all = redis.call('HGETALL', KEYS[1])
local count, parties, due = 0, {}, nil
for i = 1, #all, 2 do
  if all[i] == 'n' then
    count = readNumber(KEYS[1], 'n', all[i + 1])
  elseif all[i] == 'w' then
    due = all[i + 1]
  elseif string.find(all[i], '^p:') then
    parties[string.sub(all[i], 3)] = all[i + 1]
  end
end
checkIsLatch(due)
local joined = next(parties) and cjson.encode(parties) or '{}' -- an empty table may be an array
return 'I ' .. select(2, clock()) .. ' ' .. toString(count) .. ' ' .. joined
