-- Returns the count and the parties of the current run. The script changes nothing, and does not extend the
-- lifetime of the run.
--
-- Reply
--   I NOW COUNT {NAME: LEASE, ...}   COUNT is 0 if there is no run. The object has each party that has joined
--                                    but has not counted down. LEASE is the Redis time in µs at which the
--                                    party's lease ends, a space, and the id of the request by which the
--                                    party joined. ' R' follows if the party has replaced a dead one

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
local joined = next(parties) and cjson.encode(parties) or '{}' -- miniredis encodes an empty table as []
return 'I ' .. select(2, clock()) .. ' ' .. toString(count) .. ' ' .. joined
