-- Tells of the run that is under way, and of its parties. It changes nothing, not even how long the latch
-- lives.
--
-- KEYS[1] the latch's hash: lua/latch.lua
--
-- Reply: 'I NOW' no run is under way, or 'I NOW COUNT', and for each party that has joined and not counted
--        ' LEFT ID LENGTH NAME': what is left of its lease in milliseconds, 0 if it is over; the id by which
--        it has joined; its name, of so many bytes

local now, stamped = clock()
local all = redis.call('HGETALL', KEYS[1])
local count
local parts = {}
for i = 1, #all, 2 do
  local name = string.match(all[i], '^p:(.*)$')
  local till, id = string.match(all[i + 1], '^(%d+) (%S+)$')
  if all[i] == 'n' then
    count = whole(KEYS[1], 'n', all[i + 1])
  elseif name and till then
    local left = stamp(math.max(math.ceil((till - now) / 1000), 0))
    parts[#parts + 1] = ' ' .. left .. ' ' .. id .. ' ' .. #name .. ' ' .. name
  end
end
if not count then
  return 'I ' .. stamped
end
return 'I ' .. stamped .. ' ' .. stamp(count) .. table.concat(parts)
