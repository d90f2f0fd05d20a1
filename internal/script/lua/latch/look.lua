-- Tells how a run stands, and keeps a run that is under way for its lifetime.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the run; '' the one that is under way
-- ARGV[2] the session's channel; '' where other servers know of listeners, too
--
-- Reply: 'R NOW RUN COUNT LEFT LIFETIME' it is under way. The next lease of a party ends in LEFT
--        milliseconds, or later, as it is renewed; -1: none has one. A ' D' behind it: this server knows of
--        nobody that listens to ARGV[2]
--        'P NOW RUN COUNT PARTY' it is under way, and the lease of this party has ended
--        'Z NOW' it ended at 0, or none is under way, 'D NOW' it was deleted
--        'G NOW' nothing is known of it

local now, stamped = clock()
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q', 'f')
if ARGV[1] ~= '' and run[2] ~= ARGV[1] then
  local ended = redis.call('HGET', KEYS[1], 'e:' .. ARGV[1])
  return (ended and string.match(ended, '^%d+ ([ZD])$') or 'G') .. ' ' .. stamped
end
if not run[1] then
  return 'Z ' .. stamped
end
local n = whole(KEYS[1], 'n', run[1])
local first, party
if run[4] ~= '0' then
  first, party = string.match(run[5] or '', '^(%d+) (.*)$')
  first = tonumber(first)
  if not first or first <= now and leased(party) ~= first then
    -- This reads all that is remembered: not for each that waits.
    first = nil
    local all = redis.call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      local till = string.find(all[i], '^p:') and tonumber(string.match(all[i + 1], '^%d+'))
      if till and (not first or till < first) then
        first, party = till, string.sub(all[i], 3)
      end
    end
    if first then
      redis.pcall('HSET', KEYS[1], 'f', stamp(first) .. ' ' .. party)
    end
  end
end
-- Not redis.call: a server that cannot write can be read.
redis.pcall('PEXPIRE', KEYS[1], math.max(ENDED, sound(run[3] or '', 1e13) or 0))
local about = stamped .. ' ' .. (run[2] or '') .. ' ' .. stamp(n) .. ' '
if first and first <= now then
  return 'P ' .. about .. party
end
local deaf = ARGV[2] ~= '' and not subscribed(ARGV[2], false, true) and ' D' or ''
local left = first and stamp(math.ceil((first - now) / 1000)) or '-1'
return 'R ' .. about .. left .. ' ' .. (run[3] or '') .. deaf
