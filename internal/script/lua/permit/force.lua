-- Takes back the permits of holders, which learn that they have lost them. Those that wait are served.
--
-- ARGV[1] what the names of the sessions' channels begin with
-- ARGV[2] milliseconds for which the metadata of unused permits is kept
-- ARGV[3] which: '' the holder of all permits, 'r' those that have fewer, or the token of one holder
--
-- Reply: how many holders there were

local now, keep, all = clock(), tonumber(ARGV[2]), redis.call('ZRANGE', KEYS[1], 0, -1)
local over, forced = expire(now), 0
for _, owner in ipairs(all) do
  local n, token, _, kept = holding(owner)
  if n and (ARGV[3] == token or ARGV[3] == '' and n == ALL or ARGV[3] == 'r' and n ~= ALL) then
    giveBack(owner, n)
    over[#over + 1] = owner
    forced = forced + 1
    disown(owner, keep)
    if kept ~= '' then
      want('', ARGV[1], owner, kept, now)
    end
  end
end
local limit, changed = redis.call('HGET', KEYS[2], 'n'), nil
if limit then
  changed = select(2, serve('', ARGV[1], now, keep, whole(KEYS[2], 'n', limit)))
end
settle(over)
if changed then
  handOnPermits(ARGV[1], now)
end
return onMaster(stamp(forced), KEYS[2])
