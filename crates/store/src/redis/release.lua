-- A node leaves: its shares and its ownerships are free at once.
--
-- KEYS: for each key its header and its leases, then the hash of nodes.
-- ARGV: the node, 16 hexadecimal digits.
--
-- The offsets are those of `owner_until`, `issued` and `owner` in the header of `sync.lua`, from 0.

local OWNER_UNTIL, ISSUED, OWNER = 7 * 8, 23 * 8, 44 * 8
local EXPIRY = 600

local node = ARGV[1]

local function double_at(header, offset)
  return (struct.unpack('<d', header, offset + 1))
end

local function with_double(header, offset, number)
  return string.sub(header, 1, offset) .. struct.pack('<d', number) .. string.sub(header, offset + 9)
end

for i = 1, #KEYS - 1, 2 do
  local header, lease = redis.call('GET', KEYS[i]), redis.call('HGET', KEYS[i + 1], node)
  if header then
    if lease then
      local issued = double_at(header, ISSUED) - struct.unpack('<d', lease, 9)
      header = with_double(header, ISSUED, math.max(issued, 0))
    end
    if string.sub(header, OWNER + 1, OWNER + 16) == node then
      header = with_double(header, OWNER_UNTIL, 0)
    end
    redis.call('SET', KEYS[i], header, 'EX', EXPIRY)
  end
  redis.call('HDEL', KEYS[i + 1], node)
end
redis.call('HDEL', KEYS[#KEYS], node)
return redis.status_reply('OK')
