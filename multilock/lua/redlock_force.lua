-- Frees the lock here from any holder, or only from the one that was seen. The holder learns of it by its next renewal.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] channel
-- ARGV[2] milliseconds by which the metadata outlives the lease
-- ARGV[3] the owner field that was seen, if the lock of no other holder is to be freed. Not its token: servers that
--         granted it in different rounds have different ones
--
-- Reply: 'R' it was held, 'F' it was free, 'O' another holder has it

local owner, token = holder(true)
if not owner then
  return 'F'
end
if ARGV[3] and ARGV[3] ~= owner then
  return 'O'
end
redis.call('DEL', KEYS[1])
disown(owner, tonumber(ARGV[2]))
redis.call('PUBLISH', ARGV[1], token)
return 'R'
