-- Runs the function script, a script of the library that comes before this text, on a server as the key space
-- runs it: with the time of ARGV and sorted fields. It records the published messages.
--
-- ARGV[1] seconds and ARGV[2] microseconds of the time
-- ARGV[3] number of keys of the script, before the keys and the script's arguments
--
-- Reply: 'returned' or 'raised'; the type of the result or error, and its text; the command, the channel and
-- the text of each published message; every key, with its type, its time to live and its pairs; and the time
-- in milliseconds, by the server's own clock

local published = {}

local function before(a, b) -- by bytes, as Lua compares strings by the server's locale
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local function inOrder(pairs)
  local fields, values, sorted = {}, {}, {}
  for i = 1, #pairs, 2 do
    fields[#fields + 1] = pairs[i]
    values[pairs[i]] = pairs[i + 1]
  end
  table.sort(fields, before)
  for i, field in ipairs(fields) do
    sorted[2 * i - 1], sorted[2 * i] = field, values[field]
  end
  return sorted
end

local function seen(reply, name, ...)
  name = string.upper(name or '')
  if type(reply) == 'table' and reply.err then
    return reply
  elseif name == 'TIME' then
    return { ARGV[1], ARGV[2] }
  elseif name == 'HGETALL' then
    return inOrder(reply)
  elseif name == 'PUBLISH' or name == 'SPUBLISH' then
    published[#published + 1] = { name, ... }
  end
  return reply
end

local keys, argv, n = {}, {}, tonumber(ARGV[3])
for i = 4, #ARGV do
  if i < 4 + n then
    keys[i - 3] = ARGV[i]
  else
    argv[i - 3 - n] = ARGV[i]
  end
end
local shim = setmetatable({
  call = function(...) return seen(redis.call(...), ...) end,
  pcall = function(...) return seen(redis.pcall(...), ...) end,
}, { __index = redis })
local returned, reply = pcall(script, shim, keys, argv)

local kind, text = type(reply), reply
if kind == 'number' then
  text = string.format('%.17g', reply)
elseif kind == 'table' then
  kind, text = reply.err and 'error' or 'table', reply.err or ''
else
  text = tostring(reply)
end
local stored = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local hash = redis.call('TYPE', key).ok == 'hash'
  local pairs = hash and redis.call('HGETALL', key) or redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  stored[#stored + 1] = { key, hash and 'hash' or 'zset', redis.call('PTTL', key), pairs }
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return { returned and 'returned' or 'raised', kind, text, published, stored, now }
