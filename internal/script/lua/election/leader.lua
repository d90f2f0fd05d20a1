-- Reads the present leader and its value. A value counts only while the lock is held by the leader that
-- stored it.
--
-- KEYS[1] see internal/script/lua/lock.lua
-- ARGV[1] the session's channel; '' where it does not listen, or where other servers know of listeners, too
--
-- Reply: 'L LEFT OWNER TOKEN NUMBER VALUE', or 'N' if there is no leader with a value. The lease
--        ends in LEFT ms.
--        A 'D' behind the letter: this server knows of nobody that listens to ARGV[1]

lookOnMaster()
local now = clock()
local s, stored = read('', now, 0), redis.call('HGET', KEYS[1], 'leader')
local owner, token = string.match(stored or '', '^(%S+) (%d+) %d+ ')
local deaf = ARGV[1] ~= '' and not subscribed(ARGV[1], false, true) and 'D' or ''
if not owner or s.owner ~= owner or s.token ~= token then
  return 'N' .. deaf
end
return 'L' .. deaf .. ' ' .. stamp(s.left) .. ' ' .. stored
