"use strict";
// A web server on the loopback interface, which each event asks for its page.

const http = require("node:http");
const { enveloped } = require("./uncia-envelope.js");

const PAGE = `<!doctype html><title>hello</title><p>${"hello ".repeat(100)}</p>\n`;

const server = http.createServer((request, response) => {
  const isThere = request.url === "/hello";
  response.writeHead(isThere ? 200 : 404, { "content-type": "text/html" });
  response.end(isThere ? PAGE : "");
});
const listening = new Promise((resolve, reject) => {
  server.once("error", reject);
  server.listen(0, "127.0.0.1", () => resolve(server.address().port));
});
// Whoever waits for it is told what is wrong; until then it is nobody's error.
listening.catch(() => {});

async function get(path) {
  const port = await listening;
  return new Promise((resolve, reject) => {
    const request = http.get({ host: "127.0.0.1", port, path, agent: false }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("error", reject);
      response.on("end", () => resolve([response.statusCode, Buffer.concat(parts).toString()]));
    });
    request.on("error", reject);
  });
}

exports.handler = enveloped(async () => {
  const [status, page] = await get("/hello");
  return [{ status, bytes: page.length }, page === PAGE];
});
