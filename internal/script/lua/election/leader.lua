-- Reads the present leader and its value. A value counts only while the lock is held by the leader that
-- stored it.
--
-- KEYS    those of the fair lock: internal/script/lua/shared.lua
-- ARGV[1] the session's channel; '' where it does not listen, or where other servers know of listeners, too
--
-- Reply: 'L PTTL OWNER TOKEN NUMBER VALUE', or 'N' if there is no leader with a value.
--        A 'D' behind the letter: this server knows of nobody that listens to ARGV[1]

lookOnMaster()
local stored = redis.call('HGET', KEYS[2], 'v')
local owner, token = string.match(stored or '', '^(%S+) (%d+) %d+ ')
local deaf = ARGV[1] ~= '' and not subscribed(ARGV[1], false, true) and 'D' or ''
if not owner then
  return 'N' .. deaf
end
local held = redis.call('HMGET', KEYS[1], owner, 't')
if not held[1] or held[2] ~= token then
  return 'N' .. deaf
end
return 'L' .. deaf .. ' ' .. redis.call('PTTL', KEYS[1]) .. ' ' .. stored
