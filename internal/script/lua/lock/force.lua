-- Frees the lock from any holder, or only from the one whose token was seen, and hands it to the first
-- living waiter. The holder learns that it lost the lock, at once if its session may keep it while no
-- goroutine has it.
--
-- ARGV[1] what the names of the sessions' channels begin with
-- ARGV[2] milliseconds by which the metadata outlives the lease
-- ARGV[3] the token that was seen, if the lock of no other holder is to be freed; or ''
--
-- Reply: how many holders there were

local owner, token, _, kept = holder(true)
if not owner or ARGV[3] ~= '' and ARGV[3] ~= token then
  return onMaster('0')
end
local sane, last, lost = pcall(past, '') -- if not, it is freed, and handed to no waiter
redis.call('HDEL', KEYS[1], owner, 'k') -- not DEL: as in conclude of shared.lua
if not (sane and handOver('', ARGV[1], nil, tonumber(ARGV[2]), last, lost)) then
  redis.call('DEL', KEYS[1])
end
disown(owner, tonumber(ARGV[2]))
if kept then
  want('', ARGV[1], owner, kept, clock())
end
return '1'
