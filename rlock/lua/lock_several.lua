-- Takes several locks, all or none.
--
-- KEYS    two for each lock: its hash and its metadata
-- ARGV    as in lock.lua, which is one() here, the same for all; ARGV[1] is the owner field, ARGV[3] the Redis
--         time in microseconds after which this request has expired
--
-- Reply: 'G NOW TOKEN...', or the number of a lock that cannot be had and behind it what
-- one() says of that

local keys = several()
for i = 1, #keys / 2 do
  turn(keys, i)
  local owner = holder()
  local _, _, over = past(ARGV[1])
  if clock() > tonumber(ARGV[3]) or owner ~= ARGV[1] and (owner or over) then
    return i .. ' ' .. one()
  end
end
ARGV[3] = '9e15' -- all of them now, or none
local reply
for i = 1, #keys / 2 do
  turn(keys, i)
  local granted = one()
  reply = reply and reply .. string.match(granted, ' %d+$') or granted
end
return reply
