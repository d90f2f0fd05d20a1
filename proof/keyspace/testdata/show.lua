-- show formats any value, so that 1 differs from '1' and false from ''.
local function show(v)
  if type(v) == 'number' then
    return string.format('%.17g', v)
  elseif type(v) == 'string' then
    return '"' .. v .. '"'
  elseif type(v) ~= 'table' then
    return type(v) == 'boolean' and (v and 'true' or 'false') or type(v)
  elseif v.err then
    return 'error ' .. v.err
  end
  local parts = {}
  for i = 1, #v do
    parts[i] = show(v[i])
  end
  return '{' .. table.concat(parts, ', ') .. '}'
end

local call, try = redis.call, redis.pcall

local function showAll(...)
  local lines = {}
  for i = 1, select('#', ...) do
    lines[i] = show((select(i, ...)))
  end
  return table.concat(lines, '\n')
end
