-- Enters a node into the fleet of a namespace.
--
-- KEYS: the fleet's hash, the hash of its nodes.
-- ARGV: version of the layout, settings that must agree, a random number for a new hash, the node, what people
-- see of it, and for how many seconds a silent node counts as present.
--
-- Returns the version, the settings and the generation of the fleet, and how many other nodes are present. A
-- namespace without a present node takes the settings of the first that enters it.

local fleet, nodes = KEYS[1], KEYS[2]
local version, settings, random, node, about, present_for = unpack(ARGV)
local now = tonumber(redis.call('TIME')[1])

if redis.call('EXISTS', fleet) == 0 then
  redis.call('HSET', fleet, 'schema', version, 'settings', settings, 'generation', random)
end

local others = 0
local entries = redis.call('HGETALL', nodes)
for i = 1, #entries, 2 do
  local seen = tonumber(string.match(entries[i + 1], '^%d+')) or 0
  -- The clock may have been set back since.
  if math.abs(now - seen) > tonumber(present_for) then
    redis.call('HDEL', nodes, entries[i])
  elseif entries[i] ~= node then
    others = others + 1
  end
end

local found = redis.call('HMGET', fleet, 'schema', 'settings', 'generation')
if found[1] == version and (found[2] == settings or others == 0) then
  redis.call('HSET', fleet, 'settings', settings)
  redis.call('HSET', nodes, node, now .. ' ' .. about)
  found[2] = settings
end
return { found[1], found[2], found[3], others }
