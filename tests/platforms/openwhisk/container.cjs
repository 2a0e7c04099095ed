// What runs an action of Node.js: see container.py, which says how.
"use strict";

const fs = require("fs");
const http = require("http");

let main;

function init({ binary, code, main: name }) {
  main = binary ? require(process.cwd())[name] : eval(`(function(){${code}\nreturn ${name}})()`);
  if (typeof main !== "function") throw new Error(`Action entrypoint '${name}' is not a function.`);
  return { ok: true };
}

async function run({ value, ...rest }) {
  for (const [key, text] of Object.entries(rest)) process.env[`__OW_${key.toUpperCase()}`] = text;
  try {
    return (await main(value)) ?? {};
  } catch (error) {
    // As serialize-error has it.
    return { error: error instanceof Error ? { name: error.name, message: error.message, stack: error.stack } : error };
  }
}

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = JSON.parse(Buffer.concat(parts));
  let [status, answer] = [200, undefined];
  try {
    answer = request.url === "/init" ? init(body.value) : await run(body);
  } catch (error) {
    [status, answer] = [502, { error: `Initialization has failed due to: ${error}` }];
  }
  if (typeof answer !== "object") [status, answer] = [502, { error: "The action did not return a dictionary." }];
  const content = JSON.stringify(answer);
  response.writeHead(status, { "content-length": Buffer.byteLength(content) });
  response.end(content);
});
server.listen(0, "127.0.0.1", () => {
  fs.writeFileSync(".port.new", String(server.address().port));
  fs.renameSync(".port.new", ".port");
});
