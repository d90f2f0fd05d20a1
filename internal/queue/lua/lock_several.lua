-- Takes several locks that have no waiters, all or none.
--
-- KEYS    five for each lock, as in lock.lua
-- ARGV    as in lock.lua, which is one() here, the same for all; ARGV[1] is the owner field, ARGV[3] the Redis
--         time in microseconds after which this request has expired. ARGV[6] is 0: the queue of no lock is stood in
--
-- Reply: 'G NOW TOKEN...', or the number of a lock that cannot be had and behind it what
-- one() says of that

local keys = several()
for i = 1, #keys / 5 do
  turn(keys, i)
  local owner = holder()
  local _, _, over = past(ARGV[1])
  local now = clock()
  if now > tonumber(ARGV[3]) or owner ~= ARGV[1] and (owner or over or listener(session(ARGV[1]), ARGV[7], now)) then
    return i .. ' ' .. one()
  end
end
ARGV[3] = '9000000000000000' -- all of them now, or none. Embedded servers read no 9e15
local reply
for i = 1, #keys / 5 do
  turn(keys, i)
  local granted = one()
  reply = reply and reply .. string.match(granted, ' %d+$') or granted
end
return reply
