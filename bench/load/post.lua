-- What wrk sends:   wrk -s post.lua URL -- MODE PATH [FILES]
--   fixed FILE          the same body every time
--   unique FILE         the same body with a number in its system prompt, so that no two are alike
--   conversation DIR N  DIR/0000.json to N-1 in turn: every request extends its session's last
-- Prints one line, "RESULT {json}": counts, and latency percentiles in microseconds.
local mode, path, files = "fixed", nil, 0
local requests, index, head, tail = {}, 0, nil, nil

local function read(name)
  local file = assert(io.open(name, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

function init(arguments)
  mode, path, files = arguments[1], arguments[2], tonumber(arguments[3] or "1")
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  if mode == "fixed" then
    wrk.body = read(path)
    requests[1] = wrk.format()
    files = 1
  elseif mode == "unique" then
    local body = read(path)
    local mark = assert(body:find("You are a coding agent. ", 1, true))
    head, tail = body:sub(1, mark - 1), body:sub(mark)
    index = (os.time() % 100000) * 10000000
  elseif mode == "conversation" then
    for number = 0, files - 1 do
      wrk.body = read(string.format("%s/%04d.json", path, number))
      requests[number + 1] = wrk.format()
    end
  end
end

function request()
  if mode == "unique" then
    index = index + 1
    return wrk.format(nil, nil, nil, head .. string.format("%016d ", index) .. tail)
  end
  index = index % files + 1
  return requests[index]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"seconds":%.6f,"failures":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
