-- What runs a script of one lock on several. That script is the function one() here.

-- several empties KEYS, and returns what was in it: five keys for each lock.
local function several()
  local keys = {}
  for i = #KEYS, 1, -1 do
    keys[i], KEYS[i] = KEYS[i], nil
  end
  return keys
end

-- turn makes KEYS those of the i-th lock.
local function turn(keys, i)
  for k = 1, 5 do
    KEYS[k] = keys[5 * (i - 1) + k]
  end
end
