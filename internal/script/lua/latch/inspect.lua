-- Tells of the run that is under way, and of its parties. It changes nothing, not even how long the latch
-- lives.
--
-- Reply: 'I NOW COUNT {NAME: LEASE, ...}', with each party that has joined and not counted: the Redis time in
--        microseconds at which its lease ends, and the id by which it has joined. COUNT is 0 where no run is
--        under way

lookOnMaster()
local all = redis.call('HGETALL', KEYS[1])
local count, parties, due = 0, {}, nil
for i = 1, #all, 2 do
  if all[i] == 'n' then
    count = whole(KEYS[1], 'n', all[i + 1])
  elseif all[i] == 'w' then
    due = all[i + 1]
  elseif string.find(all[i], '^p:') then
    parties[string.sub(all[i], 3)] = all[i + 1]
  end
end
ours(due)
local joined = next(parties) and cjson.encode(parties) or '{}' -- an empty table may be an array
return 'I ' .. select(2, clock()) .. ' ' .. stamp(count) .. ' ' .. joined
