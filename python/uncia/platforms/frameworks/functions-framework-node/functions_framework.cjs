// Between functions-framework and a handler; laid beside it as uncia_main.cjs.
"use strict";

const crypto = require("node:crypto");
const net = require("node:net");
const functions = require("@google-cloud/functions-framework");
const { load, context, call, response } = require("./uncia_handler.cjs");

// The framework listens on every interface, and has no option for another.
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const isPort = typeof port === "number" || typeof port === "string";
  return listen.call(this, isPort ? { port: Number(port), host: "127.0.0.1" } : port, ...rest);
};

const { UNCIA_FUNCTION, UNCIA_HANDLER, UNCIA_READY, UNCIA_TIMEOUT_S } = process.env;
const handler = load(UNCIA_HANDLER);
let serving = 0;
let others = 0; // counts up with every request that begins

functions.http("serve", async (request, answer) => {
  const loaded = await handler;
  if (request.path === UNCIA_READY) return answer.status(204).end();
  let event;
  try {
    event = JSON.parse(request.rawBody && request.rawBody.length ? request.rawBody : "{}");
  } catch {
    return answer.status(400).json({ errorType: "NoJson", errorMessage: "the body is no JSON" });
  }
  const deadline = Date.now() / 1000 + Number(UNCIA_TIMEOUT_S);
  const isAlone = serving++ === 0;
  const before = ++others;
  const given = await call(loaded, event, context(UNCIA_FUNCTION, crypto.randomUUID(), deadline));
  serving--;
  // One thread serves all: what was used while others ran is not this request's.
  if (!isAlone || others !== before) delete given.user, delete given.system;
  const { status, headers, body } = response(given);
  answer.status(status).set(headers).set("x-uncia-start", "warm").type("json").send(body);
});
