"use strict";
// What the catalogue's Node.js functions share: the `uncia` key of the answer, and of an event.
// Copied beside the handler when a function is packaged.

const { randomBytes } = require("node:crypto");

// Made when it is first needed: not every runtime has random numbers while modules are loaded.
let name;
// What an answer has for the next stage alone.
const HANDED_ON = "payload";
let calls = 0;

function instance() {
  return (name ??= randomBytes(8).toString("hex"));
}

// Wall-clock time in ns. Date.now() has whole milliseconds only; timeOrigin + now() has the fraction.
// Past 2^53 ns a double no longer holds every integer, so the sum is done in BigInt and written to
// the answer as a number: exact to 256 ns until the year 2043.
function unixNs() {
  const origin = BigInt(Math.round(performance.timeOrigin * 1e3)) * 1000n;
  return Number(origin + BigInt(Math.round(performance.now() * 1e6)));
}

function cpuNs() {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

// Parameters of an event: the event itself, or the JSON in the body of an HTTP request.
function parameters(event) {
  if (event && typeof event === "object" && ("body" in event || "requestContext" in event)) {
    const body = event.isBase64Encoded
      ? Buffer.from(event.body || "", "base64").toString("utf8")
      : event.body;
    event = body ? parsed(body) : {};
  }
  if (event === null || event === undefined) return {};
  if (typeof event !== "object" || Array.isArray(event)) {
    throw new TypeError("the event must be a JSON object of parameters");
  }
  return event;
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    // Node.js' own words quote the body, which may have what must be in no error.
    throw new SyntaxError("the body must be JSON");
  }
}

// The chain that an event is a stage of, if it is one, and the event without it.
function takeChain(event) {
  if (event === null || typeof event !== "object") return [undefined, event];
  const inBody = typeof event.body === "string" && event.body.includes('"uncia"');
  if (!("uncia" in event) && !inBody) return [undefined, event];
  const { uncia, ...rest } = parameters(event);
  return [uncia?.chain, rest];
}

function client() {
  try {
    return require("./uncia-calls/index.js");
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
    throw new Error("this package invokes no functions: package it with --calls");
  }
}

// Invokes the stages that follow in a chain; what the answer says of them, and what failed.
async function follow(chain, result, context) {
  const { follow: invokeAll, kernel } = client();
  const request = context?.awsRequestId ?? "";
  const [hops, failure] = await invokeAll(chain, result, instance(), request, unixNs);
  return [{ kernel, hops }, failure];
}

// Whether a stage was invoked by its URL, so that an answer of it is one of HTTP. Where no platform
// logs hops, what failed is to be an answer that has them, as an exception has only a text.
function isByUrl(chain, event) {
  return "requestContext" in event && Boolean(chain.stages[chain.at].url);
}

// The answer of a stage of which a later one failed: as of an exception, and with its hops.
function badGateway(failure, uncia) {
  const body = JSON.stringify({ errorType: "Error", errorMessage: failure, uncia });
  return { statusCode: 502, headers: { "content-type": "application/json" }, body };
}

// The stages that follow in a chain, for a function that itself invokes those that it chooses:
// `await stages.call(name, parameters)` is the answer of one, `stages.hops` what is reported of them.
function router(chain, context) {
  if (!chain) {
    const call = async (name) => {
      throw new Error(`${name} cannot be invoked: this function is no stage of a nested chain`);
    };
    return { call, hops: [] };
  }
  return client().router(chain, instance(), context?.awsRequestId ?? "", unixNs);
}

// Makes a Lambda handler of `work(event, context, stages) -> [result, valid]`, which may be asynchronous.
// What the result has under `uncia`, such as spans, is kept there. The stages of a chain that follow are
// all invoked when the work is done; with `routes` none is, but those that the work itself invokes (`router`).
function enveloped(work, { routes = false } = {}) {
  return async (event, context) => {
    const cpu = cpuNs();
    const start = unixNs();
    const fresh = calls++ === 0;
    const [chain, given] = takeChain(event);
    const stages = routes ? router(chain, context) : undefined;
    const byUrl = Boolean(chain) && isByUrl(chain, event);
    let [result, valid, about, failure] = [{}, false, {}, ""];
    try {
      [result, valid] = await work(given, context, stages);
    } catch (error) {
      if (!byUrl || !stages?.hops.length) throw error;
      // It need have neither a message nor be an Error.
      failure = error?.message || String(error) || "the function failed";
    }
    if (chain && routes) about = { kernel: stages.kernel, hops: stages.hops };
    else if (chain) [about, failure] = await follow(chain, result, context);
    if (failure && !byUrl) throw new Error(failure);
    // It has been handed on; the caller has no use for it.
    if (about.hops?.length) delete result[HANDED_ON];
    result.uncia = {
      ...result.uncia,
      ...about,
      fresh,
      instance: instance(),
      handler_start_ns: start,
      handler_end_ns: unixNs(),
      cpu_ns: cpuNs() - cpu,
      valid: Boolean(valid) && !failure,
    };
    return failure ? badGateway(failure, result.uncia) : result;
  };
}

module.exports = { enveloped, parameters, unixNs };
