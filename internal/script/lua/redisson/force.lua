-- Frees the lock from any holder, or only from the one whose token was seen. The holder learns that
-- it lost the lock.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- ARGV[1] of locks with a queue
-- ARGV[2] milliseconds by which the metadata outlives the lease
-- ARGV[3] the token that was seen, if the lock of no other holder is to be freed; or ''
-- ARGV[4] channel
-- ARGV[5] how the message is published: see sharding in shared.lua
--
-- Reply: how many holders there were

local owner, token = holder(true)
if not owner or ARGV[3] ~= '' and ARGV[3] ~= token then
  return '0'
end
redis.call('DEL', KEYS[1])
disown(owner, tonumber(ARGV[2]))
publish(ARGV[5], ARGV[4], '0')
if sharding(ARGV[5], ARGV[4]) then -- this is rare, and the caller may be told another mode than waiters
  redis.call('PUBLISH', ARGV[4], '0')
end
return '1'
