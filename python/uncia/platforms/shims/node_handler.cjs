// Runs a function's handler once for each line of its input: see python_handler.py, which says how.
"use strict";

const fs = require("fs");
const path = require("path");
const crypto = require("crypto");
const readline = require("readline");

const instance = crypto.randomBytes(16).toString("hex");
const MOST_MESSAGE = 500;

function unixNs() {
  return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;
}

// The handler MODULE.EXPORT of this folder.
async function load(name) {
  const [module_, attribute] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
  const stem = path.join(process.cwd(), module_);
  for (const ending of [".mjs", ".js", ".cjs"]) {
    if (!fs.existsSync(stem + ending)) continue;
    const loaded = await (ending === ".mjs" ? import(stem + ending) : require(stem + ending));
    return loaded[attribute];
  }
  throw new Error(`there is no ${stem}.js`);
}

// What a handler learns of its invocation; the deadline is in Unix seconds.
function context(functionName, awsRequestId, deadline) {
  const getRemainingTimeInMillis = () => Math.max(0, deadline * 1000 - Date.now());
  return { functionName, awsRequestId, functionVersion: "$LATEST", getRemainingTimeInMillis };
}

// A handler's answer: its result as a text of JSON, or what it threw; times and CPU time in ns.
async function call(handler, event, given) {
  // The clock first and last, so that one thread's CPU time is not longer than the execution.
  const started = unixNs();
  const before = process.cpuUsage();
  let answer;
  try {
    const result = await new Promise((resolve, reject) => {
      const promised = handler(event, given, (error, value) => (error ? reject(error) : resolve(value)));
      if (promised && promised.then) promised.then(resolve, reject);
      else if (handler.length < 3) resolve(promised);
    });
    answer = { result: JSON.stringify(result === undefined ? null : result) };
  } catch (error) {
    answer = { type: String(error && error.name || "Error"), message: String(error && error.message || error) };
  }
  const used = process.cpuUsage(before);
  const ended = unixNs();
  return { ...answer, started, ended, user: used.user * 1000, system: used.system * 1000 };
}

// Status, headers and body of an answer.
function response(answer) {
  const headers = {
    "x-uncia-instance": instance,
    "x-uncia-started-unix-ns": String(answer.started),
    "x-uncia-ended-unix-ns": String(answer.ended),
    "x-uncia-execution-ns": String(answer.ended - answer.started),
  };
  if (answer.user !== undefined) {
    headers["x-uncia-cpu-user-ns"] = String(answer.user);
    headers["x-uncia-cpu-system-ns"] = String(answer.system);
  }
  if (answer.type === undefined) return { status: 200, headers, body: answer.result };
  const said = (most) => JSON.stringify({
    errorType: answer.type.slice(0, most), errorMessage: answer.message.slice(0, most),
  });
  headers["x-uncia-outcome"] = "function_error";
  headers["x-uncia-error"] = Buffer.from(said(MOST_MESSAGE)).toString("base64");
  return { status: 502, headers, body: said() };
}

// The first connection to a port.
function connection(port) {
  return new Promise((resolve, reject) => {
    const listener = require("net").createServer({ noDelay: true }, (accepted) => {
      listener.close();
      resolve(accepted);
    });
    listener.on("error", reject).listen(port);
  });
}

async function main() {
  const [name, functionName, port] = process.argv.slice(2);
  const file = port === undefined ? fs.openSync("/proc/self/fd/1", "w") : undefined;
  // What the function prints goes elsewhere than its answers.
  process.stdout.write = process.stderr.write.bind(process.stderr);
  for (const kind of ["log", "info", "debug"]) console[kind] = console.error;
  const handler = await load(name);
  const input = port === undefined ? process.stdin : await connection(Number(port));
  const write = (text) => (file === undefined ? input.write(text) : fs.writeSync(file, text));
  write("{}\n"); // loaded
  for await (const line of readline.createInterface({ input })) {
    const order = JSON.parse(line);
    const { result, type, message, started, ended, user, system } =
      await call(handler, order.event, context(functionName, order.id, order.deadline));
    const what = type === undefined ? `"result": ${result}` : JSON.stringify({ type, message }).slice(1, -1);
    write(`{${what}, "started": ${started}, "ended": ${ended}, "user": ${user}, "system": ${system}}\n`);
  }
}

module.exports = { load, context, call, response };
if (require.main === module) main().catch((error) => { console.error(error); process.exit(1); });
