"""Scripts on the server, each in one cluster slot. A repeated write does nothing."""

import hashlib
from typing import Final

from mcp_hub.stores.redis.keys import COUNT, HOLD, LET_GO, PUT, RENEW

_ASIDE: Final = """
-- keeps a bad part of a record in the hash PLACE, which holds 64 of them for a week
local function keep(place, name, value)
  if redis.call('TYPE', place).ok ~= 'hash' then redis.call('DEL', place) end
  if redis.call('HLEN', place) < 64 then
    redis.call('HSET', place, string.sub(name, 1, 1024), string.sub(value, 1, 65536))
  end
  redis.call('PEXPIRE', place, 604800000)
end
"""

_WHOLE: Final = """
-- whether a text is a whole number that Lua counts exactly
local function whole(text) return text and #text <= 15 and string.find(text, '^%d+$') ~= nil end
"""

_CHUNK: Final = (
    _WHOLE
    + """
-- the last event of a chunk, if it is what the hub writes
local function sound(entry)
  local fields, ends = entry[2], string.match(entry[1], '^(%d+)%-0$')
  local is_sound = #fields == 8 and whole(ends) and whole(fields[2]) and whole(fields[4])
  if not is_sound or tonumber(fields[2]) > tonumber(ends) then return nil end
  if fields[6] ~= '' and not string.find(fields[6], ':%d%d?%d?%d?$') then return nil end
  return tonumber(ends)
end
"""
)

_GROW: Final = (
    _CHUNK
    + """
local ROW, EVENTS, PARTS, MESSAGES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TAG, EPOCH, FIRST, LAST, SIZE, PART = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local MOST_EVENTS, MOST_BYTES, BODY = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local CHANGES = 10

-- before anything is written: whether all that is counted with below is a number, and nobody has written behind the end
local function intact(last)
  local row = redis.call('HMGET', ROW, 'epoch', 'first', 'last', 'bytes', 'ttl')
  for i = 1, 4 do if not whole(row[i]) then return false end end
  if not tonumber(row[5]) then return false end
  return tonumber(LAST) < tonumber(FIRST) or #redis.call('XREVRANGE', EVENTS, '+', '(' .. last .. '-0', 'COUNT', 1) == 0
end

local function trim(first, last, bytes)
  local from = first
  while last - from >= MOST_EVENTS or bytes > MOST_BYTES do
    local oldest = redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    local ends = sound(oldest)
    if ends and ends >= last then break end
    redis.call('XDEL', EVENTS, oldest[1])
    if ends then
      local part, count = string.match(oldest[2][6], '^(.*):(%d+)$')
      for i = 1, tonumber(count or 0) do redis.pcall('HDEL', PARTS, part .. ':' .. i) end
      from, bytes = ends + 1, math.max(bytes - oldest[2][4], 0)
    end
  end
  if from > first then redis.call('HSET', ROW, 'first', from, 'bytes', bytes) end
end

-- appends the chunk, changes the row, sets the expiry at the end; what is too much goes
local function grow()
  if tonumber(LAST) >= tonumber(FIRST) then
    local added = redis.pcall('XADD', EVENTS, LAST .. '-0', 'f', FIRST, 'n', SIZE, 'p', PART, 'd', BODY)
    if type(added) == 'table' and added.err then return nil end
    redis.call('HSET', ROW, 'last', LAST)
    redis.call('HINCRBY', ROW, 'bytes', SIZE)
  end
  redis.call('HSET', ROW, 'tag', TAG)
  for i = CHANGES, #ARGV, 2 do
    if ARGV[i + 1] == '' then redis.call('HDEL', ROW, ARGV[i])
    else redis.call('HSET', ROW, ARGV[i], ARGV[i + 1]) end
  end
  local row = redis.call('HMGET', ROW, 'first', 'last', 'bytes', 'status', 'updated', 'ttl')
  trim(tonumber(row[1]), tonumber(row[2]), tonumber(row[3]))
  if row[4] == 'working' or row[4] == 'input_required' then return '' end
  local expires = string.format('%.17g', row[5] + row[6])
  redis.call('HSET', ROW, 'expires', expires)
  redis.call('DEL', MESSAGES)
  local left = string.format('%.0f', math.max(1, math.min(row[6] * 1000, 1e12)))
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], left) end
  return expires
end

-- forgets all chunks, and their parts but those of the present one, which are there before it
local function clear()
  redis.call('DEL', EVENTS)
  local own = string.match(PART, '^(.*):%d+$')
  for _, name in ipairs(redis.pcall('HKEYS', PARTS)) do
    if string.match(name, '^(.*):%d+$') ~= own then redis.call('HDEL', PARTS, name) end
  end
end

local function ended(status) return status ~= 'working' and status ~= 'input_required' end

local function done(expires, place)
  if not expires then return {'damaged'} end
  return {'done', expires, place}
end
"""
)

CREATE: Final = (
    _GROW
    + """
if redis.call('EXISTS', ROW) == 1 then
  local row = redis.call('HMGET', ROW, 'epoch', 'last', 'status', 'tag', 'expires')
  if row[4] == TAG then return {'done', row[5] or ''} end
  return {'exists', row[1] or '', row[2] or '', row[3] or ''}
end
redis.call('DEL', MESSAGES)
clear()
redis.call('HSET', ROW, 'epoch', EPOCH, 'first', FIRST, 'last', FIRST - 1, 'bytes', 0)
return done(grow())
"""
)
"""`done` and when it expires (empty while it runs), or `exists` with epoch, last and status.

The changes are all fields but those set here.
"""

APPEND: Final = (
    _GROW
    + """
local row = redis.call('HMGET', ROW, 'epoch', 'last', 'status', 'tag', 'expires', 'place')
if not row[1] then return {'unknown'} end
if row[4] == TAG then return {'done', row[5] or '', row[6] or ''} end
if not whole(row[2]) or not row[3] then return {'damaged'} end
local gap = ARGV[#ARGV - 1] == 'first' and tonumber(FIRST) > row[2] + 1
local follows = gap or tonumber(LAST) < tonumber(FIRST) or tonumber(FIRST) == row[2] + 1
if row[1] ~= EPOCH or ended(row[3]) or not follows then return {'fenced', row[1], row[2], row[3]} end
if gap then
  clear()
  row[2] = string.format('%.0f', FIRST - 1)
  redis.call('HSET', ROW, 'first', FIRST, 'last', row[2], 'bytes', 0)
end
if not intact(row[2]) then return {'damaged'} end
return done(grow(), row[6] or '')
"""
)
"""`done`, when it expires (empty while it runs) and its place; `unknown`; `fenced` with epoch, last and status; or
`damaged`: others have written to the stream, and nothing can be appended.
"""

CLAIM: Final = (
    _GROW
    + """
local row = redis.call('HMGET', ROW, 'epoch', 'last', 'status', 'tag', 'updated')
if row[4] ~= TAG then
  local epoch, updated = string.match(EPOCH, '^(%d+) (.+)$')
  if row[1] ~= epoch or tonumber(row[5] or '') ~= tonumber(updated) then return {} end
  if not whole(row[2]) or row[2] + 1 ~= tonumber(FIRST) or ended(row[3]) then return {} end
  if not intact(row[2]) or not grow() then return {'damaged'} end
  redis.call('HINCRBY', ROW, 'epoch', 1)
end
return redis.call('HGETALL', ROW)
"""
)
"""The row as it is then; nothing if it was written to since the claimer saw it; or `damaged`. EPOCH has the time of its
last write behind it. The changes name the new owner.
"""

FETCH: Final = (
    _CHUNK
    + """
local row = redis.call('HGETALL', KEYS[1])
local chunks, most, room, from = {}, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[1] .. '-0'
local last
for i = 1, #row, 2 do if row[i] == 'last' and whole(row[i + 1]) then last = tonumber(row[i + 1]) end end
while last and most > 0 and room > 0 do
  local found = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', 16)
  for _, entry in ipairs(found) do
    if most <= 0 or room <= 0 then break end
    local fields, ends = entry[2], sound(entry)
    if not ends or ends > last then return {row, chunks, entry[1]} end
    chunks[#chunks + 1] = {fields[2], fields[6], fields[8], entry[1], fields[4]}
    most = most - (ends - math.max(fields[2], ARGV[1]) + 1)
    room = room - fields[4]
    from = string.format('%.0f-1', ends)
  end
  if #found < 16 then break end
end
return {row, chunks}
"""
)
"""The row, and chunks from the event ARGV[1] on: of each its first number, its parts, its body, its id, its bytes.

Then the id of a chunk that is damaged, which ends the page.
"""

POST: Final = """
local row = redis.call('HMGET', KEYS[1], 'owner', 'status')
if not row[1] or (row[2] ~= 'working' and row[2] ~= 'input_required') then return {'unknown'} end
local count = redis.call('LLEN', KEYS[2])
if ARGV[1] ~= 'input' then
  for _, kind in ipairs(redis.call('LRANGE', KEYS[2], 0, ARGV[3])) do
    if string.match(kind, '^%a+') == ARGV[1] then return {'done', row[1]} end
  end
end
if count >= tonumber(ARGV[3]) then return {'full'} end
redis.call('RPUSH', KEYS[2], ARGV[1] .. '\\n' .. ARGV[2])
return {'done', row[1]}
"""
"""`done` and the owner, `unknown` for a stream that does not run, or `full`."""

TAKE: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner') or ''
if owner ~= ARGV[1] then return {owner} end
local found = redis.call('LRANGE', KEYS[2], 0, ARGV[2] - 1)
table.insert(found, 1, owner)
return found
"""
"""The owner (empty: there is no such stream), and ARGV[2] messages at most if that is the caller."""

RELEASE: Final = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('HSET', KEYS[1], 'owner', '') end
return 1
"""
"""From here on the stream, if it is the caller's, has no owner."""

RESERVE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HGET', KEYS[1], ARGV[1])
local id, since = string.match(held or '', '^(st_[%w_-]+) (%d+)$')
if id and #id <= 67 and #since <= 15 and id ~= ARGV[2] and id ~= ARGV[3] then
  return {id, string.format('%.0f', now - since)}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {}
"""
"""Gives the key ARGV[1] to stream ARGV[2], also if ARGV[3] has it; else who has it, and for how many milliseconds."""

DELETE: Final = """
local row = redis.call('HMGET', KEYS[1], 'status', 'principal', 'key')
if row[1] == 'working' or row[1] == 'input_required' then return {'runs'} end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return {'done', row[2] or '', row[3] or ''}
"""
"""Deletes a stream that has ended: `done` with its principal and key; `runs` for one that has not."""

BEAT: Final = (
    _ASIDE
    + _WHOLE
    + """
local all, beats, bad = redis.call('HGETALL', KEYS[1]), {}, {}
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  local is_replica = #name <= 67 and string.find(name, '^in_[%w_-]+$')
  if not (is_replica and whole(value)) and #bad < 1000 then
    keep(KEYS[2], name, value)
    redis.call('HDEL', KEYS[1], name)
    bad[#bad + 1] = string.sub(name, 1, 67)
    value = '1'
    if is_replica then redis.call('HSET', KEYS[1], name, value) end
  end
  if is_replica and whole(value) and name ~= ARGV[1] then
    beats[#beats + 1] = name
    beats[#beats + 1] = value
  end
end
local beat = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
local info = redis.pcall('INFO', 'server')
return {beat, beats, bad, type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''}
"""
)
"""Counts a beat of replica ARGV[1]: that, the last beat of each other one, bad records, and the server's run (empty if
unknown).

Bad records go to KEYS[2]. A replica whose record was bad is observed anew.
"""

PUT_SESSION: Final = """
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old == '' then return {'ended'} end
if old and old ~= ARGV[2] then
  if ARGV[5] ~= '' and ARGV[5] ~= redis.sha1hex(old) then return {'other', old} end
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', 'id', ARGV[1], 'by', ARGV[6], 'is', 'changed')
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
local many = redis.call('ZCARD', KEYS[2]) - ARGV[4]
if many > 0 then
  many = math.min(many, 1000)
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, many)) do
    if many > 0 and id ~= ARGV[1] then
      redis.call('ZREM', KEYS[2], id)
      redis.call('HDEL', KEYS[1], id)
      many = many - 1
    end
  end
end
return {'done'}
"""
"""Adds or replaces a session; beyond ARGV[4] of them those go that expire first.

`other` and the record, if that has not the digest ARGV[5]; `ended`.
"""

END_SESSION: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == '' then return 0 end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[4], '*', 'id', ARGV[1], 'by', ARGV[3], 'is', 'ended')
redis.call('HSET', KEYS[1], ARGV[1], '')
return 1
"""
"""Leaves an empty record until ARGV[2], so that no replica stores the session again."""

SWEEP_SESSIONS: Final = """
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 1000)
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[1], id)
end
return #old
"""

SET_ASIDE: Final = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == ARGV[1] then return '' end
if ARGV[2] ~= '' then
  if kind ~= 'hash' or redis.sha1hex(table.concat(redis.call('HGETALL', KEYS[1]), ' ')) ~= ARGV[2] then return '' end
end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], 604800000)
return kind
"""
"""Renames a key to KEYS[2], for a week, unless its type is ARGV[1]; its type if it was renamed.

With ARGV[2] only a hash with this digest.
"""

SET_PARTS_ASIDE: Final = (
    _ASIDE
    + """
local kind, count = redis.call('TYPE', KEYS[1]).ok, 0
for i = 1, #ARGV, 2 do
  local name, value, gone = ARGV[i], ARGV[i + 1], 0
  if kind == 'hash' then
    local stored = redis.call('HGET', KEYS[1], name)
    if stored and redis.sha1hex(stored) == value then
      value, gone = stored, redis.call('HDEL', KEYS[1], name)
    end
  elseif kind == 'set' then gone = redis.call('SREM', KEYS[1], name)
  elseif kind == 'zset' then gone = redis.call('ZREM', KEYS[1], name)
  elseif kind == 'stream' then
    local stored = redis.call('XRANGE', KEYS[1], name, name)[1]
    value = stored and table.concat(stored[2], ' ') or ''
    gone = redis.call('XDEL', KEYS[1], name)
  end
  if gone > 0 then keep(KEYS[2], name, value) end
  count = count + gone
end
return count
"""
)
"""Moves parts of a key to the hash KEYS[2]: fields with the digest of their values, members, or entries; how many."""

KEEP_BATCH: Final = """
if ARGV[2] == '1' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
return 1
"""
"""Keeps a batch of past calls; with ARGV[2] only one that is there already. Whether it did."""

ALL: Final = (
    CREATE, APPEND, CLAIM, FETCH, POST, TAKE, RELEASE, RESERVE, HOLD, LET_GO, RENEW, DELETE, BEAT, PUT_SESSION,
    END_SESSION, SWEEP_SESSIONS, SET_ASIDE, SET_PARTS_ASIDE, KEEP_BATCH, COUNT, PUT,
)  # fmt: skip


def digest(script: str) -> str:
    return _DIGESTS[script]


_DIGESTS: Final = {script: hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest() for script in ALL}
