-- Releases several locks.
--
-- KEYS    two for each lock: its hash and its metadata
-- ARGV    as in release.lua, which is one() here, for the first lock; then, of each further one, what one() has as
--         ARGV[1], [2], [5] and [6]: owner field, token, Redis time until which a copy may
--         arrive, last token used. Its channel has the name of its first key
--
-- Reply: what one() says of each, with commas between

local keys, argv, replies = several(), { unpack(ARGV) }, {}
for i = 1, #keys / 2 do
  turn(keys, i)
  if i > 1 then
    ARGV[1], ARGV[2], ARGV[5], ARGV[6] = unpack(argv, 4 * i - 1, 4 * i + 2)
    ARGV[3] = KEYS[1]
  end
  replies[i] = one()
end
return table.concat(replies, ',')
