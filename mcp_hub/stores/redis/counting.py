"""Scripts by which replicas share: counted calls, locks, texts, rows."""

from typing import Final

COUNT: Final = """
local HOLDER, REPLICA, pause = ARGV[1], ARGV[2], 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS / 2 do
  local begun, holders = KEYS[2 * i - 1], KEYS[2 * i]
  local count, period, running = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  if running > 0 and redis.call('HEXISTS', holders, HOLDER) == 0 and redis.call('HLEN', holders) >= running then
    return {'full', i}
  end
  local oldest = count > 0 and redis.call('LINDEX', begun, count - 1)
  local at = oldest and tonumber(string.match(oldest, '^%d+'))
  if at and at <= now and at + period > now then pause = math.max(pause, at + period - now) end
end
if pause > 0 then return {'wait', pause} end
for i = 1, #KEYS / 2 do
  local begun, holders = KEYS[2 * i - 1], KEYS[2 * i]
  local count, period, running = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  if count > 0 then
    redis.call('LPUSH', begun, string.format('%.0f', now))
    redis.call('LTRIM', begun, 0, count - 1)
    redis.call('PEXPIRE', begun, period + 1000)
  end
  if running > 0 then
    redis.call('HSET', holders, HOLDER, REPLICA)
    redis.call('PEXPIRE', holders, 604800000)
  end
end
return {'taken', 0}
"""
"""Counts ARGV[1] of replica ARGV[2] under limits: two keys each, and count, milliseconds, and how many may run.

`taken`; `wait` for so many milliseconds; `full`: so many run under this limit.
"""

HOLD: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[2] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return ''
"""
"""The other replica that holds it; nothing if replica ARGV[1] does from now on: nobody did, or ARGV[2], or itself."""

LET_GO: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"

RENEW: Final = """local stamp = redis.sha1hex(redis.call('GET', KEYS[1]) or '')
if stamp == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return stamp"""
"""The digest of a text, which becomes ARGV[2] if it is ARGV[1]."""

PUT: Final = """local write = redis.call('INCR', KEYS[1])
redis.call('ZADD', KEYS[2], write, ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[3])
return write"""
"""Writes row ARGV[1] as ARGV[3], used at ARGV[2], and returns the number of this write, by which others find it."""
