-- Returns the present leader and its value. A value counts only while the leader that stored it holds the
-- lock.
--
-- KEYS[1]   see internal/script/lua/lock.lua
-- ARGV[1]   the session's channel, or ''. It is '' if the session has no subscription, or if other servers
--           may have the subscription
--
-- Replies
--   L LEFT OWNER TOKEN NUMBER VALUE   the leader, whose lease ends in LEFT ms. For NUMBER and VALUE, see
--                                     proclaim.lua
--   N                                 there is no leader with a value
--   A D directly after the letter means that this server has no subscriber to the channel in ARGV[1]

lookOnMaster()
local now = clock()
local s, stored = read('', now, 0), redis.call('HGET', KEYS[1], 'leader')
local owner, token = string.match(stored or '', '^(%S+) (%d+) %d+ ')
local deaf = ARGV[1] ~= '' and not subscribed(ARGV[1]) and 'D' or ''
if not owner or s.owner ~= owner or s.token ~= token then
  return 'N' .. deaf
end
return 'L' .. deaf .. ' ' .. toString(s.left) .. ' ' .. stored
