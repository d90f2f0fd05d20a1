-- Frees a lock that is shared with Redisson, as lock/release.lua. It also gives back tokens of its counter.
--
-- ARGV[1] to [6] internal/script/lua/lock/release.lua
-- ARGV[7] CHANNEL
-- ARGV[8] HOW
--
-- Reply: 'R' or 'L', as of lock/release.lua; with ' HEARD' behind it, a lock was freed, and that many clients
--        of this server were told. If its data are gone, they are told, too

local used, mine, _, odd = conclude()
whole(KEYS[1], 't', odd)
local reply = mine and 'R' or 'L'
if used then
  redis.call('SET', KEYS[3], used, 'XX') -- Redisson raises it only while it holds
  local heard = publish(ARGV[8], ARGV[7])
  reply = reply .. ' ' .. heard
else
  onMaster()
  if ARGV[2] ~= '' and released(ARGV[2]) then
    reply = 'R'
  elseif ARGV[2] ~= '' then
    alarm(ARGV[8], ARGV[7])
  end
end
tombstone(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply
