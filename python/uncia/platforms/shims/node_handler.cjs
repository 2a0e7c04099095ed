// Runs a function's handler once for each line of its input: see python_handler.py, which says how.
"use strict";

const fs = require("fs");
const path = require("path");
const readline = require("readline");

const [name, functionName] = process.argv.slice(2);
const answers = fs.openSync("/proc/self/fd/1", "w");
// What the function prints goes elsewhere than its answers.
process.stdout.write = process.stderr.write.bind(process.stderr);
for (const kind of ["log", "info", "debug"]) console[kind] = console.error;
const [module_, attribute] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];

function unixNs() {
  return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;
}

async function load() {
  const stem = path.join(process.cwd(), module_);
  for (const ending of [".mjs", ".js", ".cjs"]) {
    if (fs.existsSync(stem + ending)) return ending === ".mjs" ? import(stem + ending) : require(stem + ending);
  }
  throw new Error(`there is no ${stem}.js`);
}

async function main() {
  const handler = (await load())[attribute];
  fs.writeSync(answers, "{}\n"); // loaded
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const context = {
      functionName, awsRequestId: order.id, functionVersion: "$LATEST",
      getRemainingTimeInMillis: () => Math.max(0, order.deadline * 1000 - Date.now()),
    };
    // The clock first and last, so that one thread's CPU time is not longer than the execution.
    const started = unixNs();
    const before = process.cpuUsage();
    let answer;
    try {
      const result = await new Promise((resolve, reject) => {
        const given = handler(order.event, context, (error, value) => (error ? reject(error) : resolve(value)));
        if (given && given.then) given.then(resolve, reject);
        else if (handler.length < 3) resolve(given);
      });
      answer = JSON.stringify({ result: result === undefined ? null : result });
    } catch (error) {
      answer = JSON.stringify({ type: error && error.name || "Error", message: String(error && error.message || error) });
    }
    const used = process.cpuUsage(before);
    const ended = unixNs();
    const times = `"started": ${started}, "ended": ${ended}, "user": ${used.user * 1000}, "system": ${used.system * 1000}`;
    fs.writeSync(answers, `${answer.slice(0, -1)}, ${times}}\n`);
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
