-- What several documents need at once: on the server, where nothing comes between.
--
-- KEYS: the documents (a hash of "REVISION JSON" by key), their keys in order (a sorted set), the
-- changes (a stream, whose positions are revisions), and the revision that was given last.
-- ARGV: the operation and its arguments. The texts of documents pass through as they are.
local documents, order, changes, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function revision_of(key)
  local held = redis.call('HGET', documents, key)
  return held and held:match('^%d+') or '0'
end

-- transact WRITER (put|delete|check KEY REVISION|"" JSON|"")...: all of it, if every document that
-- is named with a revision still has it (0: there is none), else nothing. Each document is named
-- once: a second step would be checked against what was there before the first.
-- Returns {"ok", the revision of each}, or {"conflict", key, its revision}.
local function transact()
  local writer, steps, named = ARGV[2], {}, {}
  for at = 3, #ARGV, 4 do
    local step = {kind = ARGV[at], key = ARGV[at + 1], json = ARGV[at + 3]}
    if named[step.key] then
      return redis.error_reply('ERR ' .. step.key .. ' is named twice in one transaction')
    end
    named[step.key] = true
    local expected, is_now = ARGV[at + 2], revision_of(step.key)
    if expected ~= '' and expected ~= is_now then
      return {'conflict', step.key, is_now}
    end
    step.revision = is_now
    steps[#steps + 1] = step
  end
  local result = {'ok'}
  for _, step in ipairs(steps) do
    local is_there = redis.call('HEXISTS', documents, step.key) == 1
    if step.kind == 'put' or (step.kind == 'delete' and is_there) then
      local revision = string.format('%.0f', redis.call('INCR', last))
      if step.kind == 'put' then
        redis.call('HSET', documents, step.key, revision .. ' ' .. step.json)
        redis.call('ZADD', order, 0, step.key)
      else
        redis.call('HDEL', documents, step.key)
        redis.call('ZREM', order, step.key)
      end
      redis.call('XADD', changes, revision .. '-0', 'key', step.key, 'kind', step.kind,
                 'json', step.json, 'writer', writer)
      step.revision = revision
    end
    result[#result + 1] = step.revision
  end
  return result
end

-- list PREFIX AFTER COUNT: the next documents behind a key, in the order of their keys' bytes.
-- Returns {key, "REVISION JSON", ...}.
local function list()
  local prefix, after, count = ARGV[2], ARGV[3], ARGV[4]
  local from = after == '' and '[' .. prefix or '(' .. after
  -- No byte of UTF-8 is 255.
  local keys = redis.call('ZRANGEBYLEX', order, from, '(' .. prefix .. '\255', 'LIMIT', 0, count)
  local result = {}
  for _, key in ipairs(keys) do
    result[#result + 1] = key
    result[#result + 1] = redis.call('HGET', documents, key)
  end
  return result
end

if ARGV[1] == 'transact' then return transact() end
return list()
