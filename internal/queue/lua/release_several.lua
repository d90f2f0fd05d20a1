-- Releases several locks, and hands each to the first that waits for it.
--
-- KEYS    five for each lock, as in release.lua
-- ARGV    as in release.lua, which is one() here, for the first lock; then, of each further one, what one() has as
--         ARGV[1], [2], [5] and [6]: owner field, token, Redis time until which a copy may
--         arrive, last token used
--
-- Reply: what one() says of each, with commas between

local keys, argv, replies = several(), { unpack(ARGV) }, {}
for i = 1, #keys / 5 do
  turn(keys, i)
  if i > 1 then
    ARGV[1], ARGV[2], ARGV[5], ARGV[6] = unpack(argv, 4 * i - 1, 4 * i + 2)
  end
  replies[i] = one()
end
return table.concat(replies, ',')
