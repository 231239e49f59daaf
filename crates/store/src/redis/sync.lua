-- What a node says about some keys, and what the fleet answers. `policy::fleet::Ledger` is this script in Rust,
-- function by function, with the reasons; a test compares the two call by call, to the last bit. So the order
-- of operations matters here: change both together.
--
-- KEYS: for each key its header, its leases and its owner's record.
-- ARGV: the node, 16 hexadecimal digits; the server's time in microseconds after which the call changes nothing, or
-- nothing; the time instead of the server's, only in tests; then for each key a row of CALL and a record.
--
-- Returns the server's time in microseconds, and for each key a reply as a row of doubles; only the time if the
-- call came too late. Times are microseconds, rates are per second.

local CALL = {
  'interval', 'lease', 'initial_rate', 'min_rate', 'open_first', 'open_for', 'trip_window', 'half_open_probes',
  'probe_lost_after', 'demand', 'want', 'held', 'sent', 'sent_freely', 'accepted', 'latency_sum', 'late_accepted',
  'late_refused', 'refusal', 'refusal_wait', 'refusal_epoch', 'refusal_age', 'hold_for', 'left', 'left_reset',
  'left_serial', 'trip', 'probe', 'back', 'claim', 'claim_rate', 'claim_epoch', 'claim_share', 'fence', 'decision',
  'decision_fence', 'decision_rate', 'decision_refusals', 'decision_hold_for', 'decision_is_blind',
  'claim_overrides', 'claim_is_isolated', 'overriding', 'skipped', 'refusal_serial',
}
local CALL_FORMAT = '<' .. string.rep('d', #CALL)

local HEADER = {
  'rate', 'epoch', 'line', 'serial', 'hold', 'is_blind', 'blind_until', 'owner_until', 'fence',
  'sent', 'accepted', 'latency_sum', 'late_accepted', 'late_refused', 'refusals', 'refusal', 'refusal_wait',
  'refused_at', 'refusal_number', 'back', 'closes',
  'level', 'spare', 'issued', 'active', 'demand', 'counted',
  'quota_last', 'quota_until', 'quota_told_by', 'quota_size', 'quota_period', 'quota_used_up_until',
  'breaker', 'open_until', 'open_time', 'tripped_1', 'tripped_2', 'tripped_3', 'probe_until', 'successes',
  'touched', 'born', 'learn_until',
  'owner', 'trip_1', 'trip_2', 'trip_3', 'probe_node',
  'overrides', 'last', 'skipped',
}
local HEADER_FORMAT = '<' .. string.rep('d', #HEADER - 8) .. string.rep('c16', 5) .. 'ddd'
local HEADER_SIZE = 8 * (#HEADER - 5) + 16 * 5

local CLOSED, OPEN, HALF_OPEN, ISOLATED = 0, 1, 2, 3
local ISOLATE, RELEASE, RESET = 1, 2, 3
local NOBODY = '0000000000000000'
local SECOND = 1000000
local BLIND_LOST = 5 * SECOND
local SLOW_STEP = SECOND / 2
local EXPIRY = 600

local node = ARGV[1]
local deadline = tonumber(ARGV[2])
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * SECOND + tonumber(time[2])
end

local max, min = math.max, math.min

-- Names for the numbers of a row.
local function named(names, values)
  local row = {}
  for i, name in ipairs(names) do
    row[name] = values[i]
  end
  return row
end

local function read_call(packed)
  local values = { struct.unpack(CALL_FORMAT, packed) }
  local call = named(CALL, values)
  call.record = string.sub(packed, values[#CALL + 1])
  return call
end

local function new_header(call)
  local header = {}
  for _, name in ipairs(HEADER) do
    header[name] = 0
  end
  for _, name in ipairs({ 'owner', 'trip_1', 'trip_2', 'trip_3', 'probe_node' }) do
    header[name] = NOBODY
  end
  header.rate = call.claim == 1 and call.claim_rate or call.initial_rate
  header.epoch = call.claim == 1 and call.claim_epoch or 1
  header.line = now
  header.level = 1
  header.active = 1
  header.breaker = CLOSED
  header.open_time = call.open_first
  header.touched = now
  header.born = now
  header.learn_until = call.claim == 1 and now + call.lease or 0
  return header
end

local function read_header(key, call)
  local packed = redis.call('GET', key)
  if not packed then
    return new_header(call)
  end
  -- Nodes of an earlier version do not write the last three; claims bring `overrides` back.
  packed = packed .. string.rep('\0', HEADER_SIZE - #packed)
  return named(HEADER, { struct.unpack(HEADER_FORMAT, packed) })
end

local function write_header(key, header)
  local expiry, values = EXPIRY, {}
  if header.hold > now then
    expiry = EXPIRY + math.ceil((header.hold - now) / SECOND)
    redis.call('EXPIRE', key.record, expiry)
  end
  for i, name in ipairs(HEADER) do
    values[i] = header[name]
  end
  redis.call('SET', key.header, struct.pack(HEADER_FORMAT, unpack(values)), 'EX', expiry)
end

local function unpack_lease(packed)
  local demand, share, until_, granted = struct.unpack('<dddd', packed)
  return { demand = demand, share = share, until_ = until_, granted = granted }
end

local function pack_lease(lease)
  return struct.pack('<dddd', lease.demand, lease.share, lease.until_, lease.granted)
end

local function read_lease(leases)
  local packed = redis.call('HGET', leases, node)
  return packed and unpack_lease(packed)
end

local function close_breaker(h, call)
  h.breaker = CLOSED
  h.open_time = call.open_first
  for i = 1, 3 do
    h['trip_' .. i], h['tripped_' .. i] = NOBODY, 0
  end
  h.probe_until = 0
  h.successes = 0
end

local TIMES = {
  'line', 'last', 'hold', 'blind_until', 'owner_until', 'refused_at', 'counted', 'quota_until', 'quota_used_up_until',
  'open_until', 'tripped_1', 'tripped_2', 'tripped_3', 'probe_until', 'touched', 'born', 'learn_until',
}

-- The clock was set back, or this server took over from one whose clock is ahead.
local function follow_clock(h, key)
  if now >= h.touched - SECOND then
    return
  end
  local by = now - h.touched
  for _, name in ipairs(TIMES) do
    h[name] = h[name] + by
  end
  local entries = redis.call('HGETALL', key.leases)
  for i = 1, #entries, 2 do
    local lease = unpack_lease(entries[i + 1])
    lease.until_, lease.granted = lease.until_ + by, lease.granted + by
    redis.call('HSET', key.leases, entries[i], pack_lease(lease))
  end
end

local function take_claim(h, call, key)
  if call.claim == 0 then
    return
  end
  if now - h.touched > call.lease then
    redis.call('DEL', key.leases)
    key.lease = nil
    h.issued = 0
    h.counted = 0
    h.line = max(h.line, now)
    h.learn_until = now + call.lease
  end
  if call.claim_epoch > h.epoch then
    h.epoch = call.claim_epoch
    h.rate = min(h.rate, call.claim_rate)
  end
  if call.claim_overrides > h.overrides then
    h.overrides = call.claim_overrides
    if call.claim_is_isolated == 1 or h.breaker == ISOLATED then
      close_breaker(h, call)
    end
    if call.claim_is_isolated == 1 then
      h.breaker = ISOLATED
    end
  end
end

local function take_override(h, call, key)
  if call.overriding == 0 then
    return
  end
  h.overrides = h.overrides + 1
  h.epoch = h.epoch + 1
  close_breaker(h, call)
  if call.overriding == ISOLATE then
    h.breaker = ISOLATED
    return
  end
  h.hold = 0
  h.quota_last, h.quota_until, h.quota_told_by = 0, 0, 0
  h.quota_size, h.quota_period, h.quota_used_up_until = 0, 0, 0
  h.is_blind = 0
  if call.overriding == RESET then
    h.rate = max(call.initial_rate, call.min_rate)
    redis.call('DEL', key.record)
    h.owner_until = 0
  end
  h.line = min(h.line, now + SECOND / h.rate)
end

local function take_back(h, call, lease)
  local had_lease = lease and lease.until_ >= now
  if call.back > 0 and not had_lease and now - h.touched <= call.lease and now - h.born > 3 * SECOND then
    h.back = h.back + call.back
  end
end

local function merge(h, call)
  if call.accepted > 0 or call.late_accepted > 0 then
    h.is_blind = 0
  end
  h.sent = h.sent + call.sent
  h.skipped = h.skipped + call.skipped
  h.serial = h.serial + call.sent_freely
  h.late_refused = h.late_refused + call.late_refused
  h.late_accepted = h.late_accepted + call.late_accepted
  if now < h.quota_used_up_until then
    h.late_accepted = h.late_accepted + call.accepted
  else
    h.accepted = h.accepted + call.accepted
    h.latency_sum = h.latency_sum + call.latency_sum
  end
end

local function take_quota(h, call)
  if call.left < 0 then
    return
  end
  local reset = call.left_reset
  local until_ = now + reset
  local serial = call.left_serial == 0 and h.serial or call.left_serial
  h.quota_period = max(h.quota_period, reset)
  local is_same = math.abs(until_ - h.quota_until) < h.quota_period / 2
  if (until_ < h.quota_until and not is_same) or (is_same and serial < h.quota_told_by) then
    return
  end
  h.quota_last = serial + call.left
  h.quota_until = is_same and min(until_, h.quota_until) or until_
  h.quota_told_by = serial
  h.quota_size = max(h.quota_size, call.left + 1)
end

-- The next send time moves with the rate: see the function of this name in Rust.
local function change_rate(h, rate)
  local before, step = SECOND / h.rate, SECOND / rate
  local ahead = h.line - now
  local is_usual = now >= max(max(h.hold, h.quota_until), h.learn_until)
  if ahead > 0 and is_usual and max(before, step) >= SLOW_STEP then
    h.line = h.last > now and h.last + step or now + ahead * step / before
  end
  h.rate = rate
end

-- How many requests were sent up to the one with this slot; without a slot, up to now.
local function number_of(h, serial)
  local due = serial
  if serial < 1 or serial > h.serial then
    local ahead = max(math.floor((h.line - now) * h.rate / SECOND), 0)
    due = max(h.serial - ahead, 0)
  end
  return max(due - h.skipped, 0)
end

local function take_refusal(h, call)
  if call.refusal == 0 then
    return
  end
  h.blind_until = now + 2 * call.interval
  if call.refusal_epoch ~= h.epoch then
    h.late_refused = h.late_refused + 1
    return
  end
  h.epoch = h.epoch + 1
  change_rate(h, max(0.85 * h.rate, call.min_rate))
  h.refusals = h.refusals + 1
  h.refusal = call.refusal
  h.refusal_wait = call.refusal_wait
  h.refused_at = now - call.refusal_age
  h.refusal_number = number_of(h, call.refusal_serial)
end

local function open(h, call)
  h.breaker = OPEN
  h.open_until = now + h.open_time
  h.open_time = min(1.6 * h.open_time, call.open_for)
  h.probe_until = 0
  h.successes = 0
  h.epoch = h.epoch + 1
end

local function take_trip(h, call)
  if call.trip == 0 or h.breaker ~= CLOSED then
    return
  end
  local since = now - call.trip_window
  local trips = { { node, now } }
  for i = 1, 3 do
    local other, at = h['trip_' .. i], h['tripped_' .. i]
    if #trips < 3 and at > since and other ~= node then
      trips[#trips + 1] = { other, at }
    end
  end
  for i = 1, 3 do
    local trip = trips[i] or { NOBODY, 0 }
    h['trip_' .. i], h['tripped_' .. i] = trip[1], trip[2]
  end
  if call.trip == 2 or #trips >= min(math.ceil(h.active / 2), 3) then
    open(h, call)
  end
end

local function take_probe(h, call)
  if call.probe == 0 or h.breaker ~= HALF_OPEN or h.probe_node ~= node then
    return
  end
  h.probe_until = 0
  if call.probe == 2 then
    open(h, call)
  elseif call.probe == 1 then
    h.successes = h.successes + 1
    if h.successes >= call.half_open_probes then
      close_breaker(h, call)
      h.closes = h.closes + 1
      h.epoch = h.epoch + 1
    end
  end
end

local function keep_owner(h, call)
  if call.fence > h.fence then
    h.owner = node
    h.fence = call.fence
  elseif h.owner_until < now and (h.fence > 0 or now >= h.learn_until) then
    h.owner = node
    h.fence = h.fence + 1
  end
  if h.owner == node then
    h.owner_until = now + call.lease
  end
end

local function take_decision(h, call, key)
  if call.decision == 0 or call.decision_fence ~= h.fence or h.owner ~= node
    or call.decision_refusals ~= h.refusals then
    return
  end
  change_rate(h, max(call.decision_rate, call.min_rate))
  h.hold = max(h.hold, now + call.decision_hold_for)
  h.is_blind = call.decision_is_blind
  redis.call('SET', key.record, call.record, 'EX', EXPIRY)
  if call.decision == 2 then
    h.epoch = h.epoch + 1
  end
end

-- The leases that have not run out, in the order of their nodes: sums depend on the order.
local function present_leases(key)
  local entries = redis.call('HGETALL', key.leases)
  local leases = {}
  for i = 1, #entries, 2 do
    local lease = unpack_lease(entries[i + 1])
    lease.node = entries[i]
    if lease.until_ >= now then
      leases[#leases + 1] = lease
    else
      redis.call('HDEL', key.leases, lease.node)
      if lease.node == node then
        key.lease = nil
      end
    end
  end
  table.sort(leases, function(one, other) return one.node < other.node end)
  return leases
end

local function level_of(leases, rate)
  local level = 1 / #leases
  for _ = 1, 8 do
    local satisfied, others = 0, 0
    for _, lease in ipairs(leases) do
      local wanted = lease.demand / rate
      if wanted <= level then
        satisfied = satisfied + wanted
      else
        others = others + 1
      end
    end
    if others == 0 then
      break
    end
    level = max(level, (1 - satisfied) / others)
  end
  return level
end

local function count_shares(h, call, key)
  if h.owner ~= node or now - h.counted < max(call.interval, h.active * 1000) then
    return
  end
  local leases = present_leases(key)
  local demand, issued = 0, 0
  for _, lease in ipairs(leases) do
    demand = demand + lease.demand
    issued = issued + lease.share
  end
  local nodes = max(#leases, 1)
  h.level = demand > h.rate and level_of(leases, h.rate) or 1
  h.spare = max((1 - demand / h.rate) / nodes, 0)
  h.issued = issued
  h.active = nodes
  h.demand = demand
  h.counted = now
end

local function take_share(h, call, key)
  local lease = key.lease or { share = 0, granted = 0 }
  key.lease = lease
  local wanted
  if call.claim == 1 and now < h.learn_until then
    wanted = call.claim_share
  else
    wanted = min(call.demand / h.rate, h.level) + h.spare
  end
  local others = h.issued - lease.share
  lease.share = max(min(wanted, 1 - others), 0)
  h.issued = others + lease.share
  lease.demand = call.demand
  lease.until_ = now + call.lease
  return lease.share
end

local function pass_quota(h)
  if h.line < h.quota_until and h.serial >= h.quota_last then
    h.line = h.quota_until
    h.quota_used_up_until = h.quota_until
    h.quota_last = h.serial + h.quota_size
    h.quota_told_by = h.serial
    h.quota_until = h.quota_until + h.quota_period
  end
end

local NO_SLOTS = { count = 0, serial = 0, first = 0, step = 0 }

local function reserve_within_quota(h, count, step)
  if h.line < h.quota_until then
    count = min(count, max(h.quota_last - h.serial, 0))
  end
  if count == 0 then
    return NO_SLOTS
  end
  local slots = { count = count, serial = h.serial + 1, first = h.line - now, step = step }
  h.line = h.line + count * step
  h.last = h.line - step
  h.serial = h.serial + count
  return slots
end

local function probes_for(h)
  local is_due = h.is_blind == 0 or now >= h.blind_until
  if h.breaker == OPEN or h.breaker == ISOLATED then
    return 0
  elseif h.breaker == HALF_OPEN then
    return is_due and h.probe_node == node and 1 or 0
  end
  return h.is_blind == 0 and math.huge or (is_due and 1 or 0)
end

-- The slots, when to call again, and whether the node needs none.
local function reserve(h, call, lease, share)
  local is_learning = now < h.learn_until
  local part = is_learning and max(h.issued, 0.01) or 1
  local step = SECOND / (h.rate * part)
  h.line = max(max(h.line, now), h.hold)
  pass_quota(h)
  local per_interval = share * h.rate * call.interval / SECOND
  local is_plain = h.breaker == CLOSED and not is_learning and h.is_blind == 0
  local is_calm = is_plain and h.demand < 0.8 * h.rate
  local is_usual = h.breaker == CLOSED and h.is_blind == 0
  if is_learning and is_usual and call.claim == 1 and now >= h.quota_until then
    return NO_SLOTS, 0, 1
  end
  if is_calm and per_interval >= 0.5 and now >= h.quota_until then
    return NO_SLOTS, 0, 1
  end
  local turn = lease.granted + 0.8 * h.active * step
  local per = 3 * per_interval
  local next_, count = 0, 0
  if per >= 1 then
    if h.line <= now + max(4 * call.interval, 2 * step) then
      count = min(call.want, max(math.ceil(per) - call.held, 0))
    end
  else
    local ahead = max(2 * call.interval, step / 2)
    local is_near = h.line < now + ahead
    -- While the others keep the line busy, it is its turn after one slot of each.
    local gains_at = is_near and turn or max(lease.granted + h.active * step, h.line - ahead)
    next_ = min(max(gains_at - now, 0), call.lease / 2)
    local is_turn = h.line <= now or now >= turn
    if call.held == 0 and call.want > 0 and is_turn and is_near then
      count = 1
    end
  end
  local slots = reserve_within_quota(h, min(count, probes_for(h)), step)
  if slots.count > 0 then
    h.blind_until = h.line + BLIND_LOST
    lease.granted = now
    next_ = per < 1 and min(0.8 * h.active * step, call.lease / 2) or 0
  end
  return slots, next_, 0
end

-- The state of the breaker and for how long it is open.
local function seen(h, may_probe)
  if h.breaker == OPEN then
    return 1, h.open_until - now
  elseif h.breaker == HALF_OPEN then
    return may_probe and 3 or 2, 0
  elseif h.breaker == ISOLATED then
    return 4, 0
  end
  return 0, 0
end

local function probe(h, call)
  if h.breaker == OPEN and now >= h.open_until then
    h.breaker = HALF_OPEN
    h.probe_until = 0
  end
  if h.breaker == HALF_OPEN and h.probe_until < now and call.want > 0 then
    h.probe_node = node
    h.probe_until = now + call.probe_lost_after
  end
  return seen(h, h.probe_node == node and h.probe_until >= now)
end

local function doubles(...)
  return struct.pack('<' .. string.rep('d', select('#', ...)), ...)
end

local function ownership(h, call, key)
  if h.owner ~= node then
    return doubles(0)
  end
  local record = call.fence ~= h.fence and redis.call('GET', key.record) or ''
  return doubles(1, h.fence, h.sent, number_of(h, 0), h.accepted, h.latency_sum, h.late_accepted, h.late_refused,
    h.refusals, h.refusal, h.refusal_wait, now - h.refused_at, h.refusal_number, h.back, h.closes) .. record
end

local function publish(h, key)
  local state, open_for = seen(h, false)
  redis.call('SPUBLISH', key.channel, doubles(h.rate, h.epoch, h.hold - now, state, open_for, h.overrides))
end

local function sync(key, call)
  local h = read_header(key.header, call)
  follow_clock(h, key)
  key.lease = read_lease(key.leases)
  local epoch, hold = h.epoch, h.hold
  take_claim(h, call, key)
  take_back(h, call, key.lease)
  merge(h, call)
  take_refusal(h, call)
  local knows_overrides = call.claim == 0 or call.claim_overrides >= h.overrides
  if knows_overrides then
    h.hold = max(h.hold, now + call.hold_for)
    take_quota(h, call)
    take_trip(h, call)
    take_probe(h, call)
  end
  take_override(h, call, key)
  keep_owner(h, call)
  if knows_overrides then
    take_decision(h, call, key)
  end
  count_shares(h, call, key)
  local share = take_share(h, call, key)
  local lease = key.lease
  local state, open_for = probe(h, call)
  local slots, next_, is_free = reserve(h, call, lease, share)
  h.touched = now
  write_header(key, h)
  redis.call('HSET', key.leases, node, pack_lease(lease))
  redis.call('EXPIRE', key.leases, EXPIRY)
  if h.epoch ~= epoch or h.hold > max(hold, now) then
    publish(h, key)
  end
  return doubles(h.rate, h.epoch, h.hold - now, share, is_free, slots.count, slots.serial, slots.first, slots.step, next_,
    h.active, state, open_for, h.overrides) .. ownership(h, call, key)
end

local replies = { string.format('%.0f', now) }
if deadline and now > deadline then
  return replies
end
for i = 4, #ARGV do
  local first = 3 * (i - 4)
  local key = { header = KEYS[first + 1], leases = KEYS[first + 2], record = KEYS[first + 3] }
  key.channel = string.sub(key.header, 1, -3)
  replies[#replies + 1] = sync(key, read_call(ARGV[i]))
end
return replies
