-- Runs a script that is of one lock, one(), on several. It stands behind that, and
-- before lock_several.lua or release_several.lua.
--
-- KEYS    two for each lock

local keys = {}
for i = #KEYS, 1, -1 do
  keys[i], KEYS[i] = KEYS[i], nil
end

-- turn makes KEYS those of the i-th lock.
local function turn(i)
  KEYS[1], KEYS[2] = keys[2 * i - 1], keys[2 * i]
end

