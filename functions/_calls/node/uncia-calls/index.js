"use strict";
// Chains: a function invokes the stages after its own, and reports them as hops.
//
// Only in packages of functions that invoke others, with packages of its own. AWS's SDK is loaded when
// the first stage is invoked by it; stages with a URL need Node.js alone.

const { randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const http = require("node:http");
const https = require("node:https");

const ANSWER = "uncia:answer";
const STAGE_HEADER = "x-uncia-stage"; // what the platform names the stage by in its log
const TIMEOUT_MS = 900_000; // no function runs longer
const KERNEL_CHARACTERS = 8; // of a kernel's name, so much tells it from others
const MOST_ERROR = 500;
const MOST_ANSWER_BYTES = 64 << 20;
const SOCKETS = 64; // a fan-out keeps its connections
// Of the answer of the function that was called.
const ENVELOPE = ["handler_start_ns", "handler_end_ns", "instance", "fresh", "kernel", "spans"];

let sdk;
const agents = {};

// What tells a running kernel from others: clocks on one compare.
function readKernel() {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "ascii").slice(0, KERNEL_CHARACTERS);
  } catch {
    return "";
  }
}

const kernel = readKernel();

// Invokes the stages after this one, all at once, until all have ended: the hops that are reported of
// them, and what went wrong, "" if nothing did. `request` is the id of this invocation, or empty; `now`
// gives Unix time in ns.
async function follow(chain, result, instance, request, now) {
  const calls = nextCalls(chain, result);
  if (!calls.length) return [[], ""];
  // What was closed while the instance was frozen is seen to be closed, and not written to.
  await new Promise((resume) => setImmediate(resume));
  const about = { parent: request, caller: instance, caller_kernel: kernel };
  const done = await Promise.all(calls.map((call) => perform(call, about, now)));
  const failures = done.map(([, failure]) => failure).filter(Boolean);
  return [done.flatMap(([hops]) => hops), failures.join("; ")];
}

// The stages after this one, for a function that invokes those that it chooses, when it likes:
// `call(name, parameters)` is the answer of one, without what it reports; `hops` grows by that.
function router(chain, instance, request, now) {
  const { stages, at } = chain;
  const about = { parent: request, caller: instance, caller_kernel: kernel };
  const hops = [];
  const call = async (name, parameters = {}) => {
    const index = (stages[at].next ?? []).find((it) => stages[it].stage === name);
    if (index === undefined) {
      throw new Error(`the chain has no stage ${name} that follows ${stages[at].stage}`);
    }
    const stage = stages[index];
    const uncia = { chain: { ...chain, at: index, turn: 1 } };
    const payload = Buffer.from(JSON.stringify({ ...stage.event, ...parameters, uncia }));
    await new Promise((resume) => setImmediate(resume));
    const [made, failure, answer] = await perform({ stage, name, payload, isEvent: false }, about, now);
    hops.push(...made);
    if (failure) throw new Error(failure);
    if (answer !== null && typeof answer === "object") delete answer.uncia;
    return answer;
  };
  return { call, hops, kernel };
}

// Each stage that comes next: itself, its name with its turn, its event, whether it is not waited for.
function nextCalls(chain, result) {
  const { stages, at, turn, kind } = chain;
  const repeats = turn < (stages[at].repeat ?? 1);
  const targets = repeats ? [[at, turn + 1]] : (stages[at].next ?? []).map((index) => [index, 1]);
  return targets.map(([index, nextTurn]) => {
    const stage = stages[index];
    const event = fill(stage.event ?? {}, result);
    event.uncia = { chain: { ...chain, at: index, turn: nextTurn } };
    return {
      stage,
      name: (stage.repeat ?? 1) > 1 ? `${stage.stage}-${nextTurn}` : stage.stage,
      payload: Buffer.from(JSON.stringify(event)),
      isEvent: kind === "asynchronous",
    };
  });
}

// A stage's event with values of the answer that it follows.
function fill(value, result) {
  if (Array.isArray(value)) return value.map((item) => fill(item, result));
  if (value === null || typeof value !== "object") return value;
  const path = value[ANSWER];
  if (path === undefined) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item, result)]));
  }
  let part = result;
  for (const key of path) {
    if (part === null || typeof part !== "object" || !Object.hasOwn(part, key)) {
      throw new Error(`the answer before it has no ${path.join(".")}`);
    }
    part = part[key];
  }
  return part;
}

// Invokes a stage: its hop and those that it reports, what went wrong, and its answer if it is JSON.
async function perform({ stage, name, payload, isEvent }, about, now) {
  const hop = {
    stage: name,
    function: stage.function,
    ...about,
    request_bytes: payload.length,
    event: isEvent,
    sent_ns: now(),
  };
  let answer = { body: "", failure: "" };
  try {
    answer = await (stage.url ? post : invoke)(stage, name, payload, isEvent);
  } catch (error) {
    answer.failure = `${error.name}: ${error.message || error.code}`;
  }
  hop.received_ns = now();
  hop.request = answer.request || randomUUID().replaceAll("-", "");
  if (answer.failure) {
    // The last stage that failed is named: each passes on what it is told.
    const named = answer.failure.startsWith("stage ");
    hop.error = (named ? answer.failure : `stage ${name}: ${answer.failure}`).slice(0, MOST_ERROR);
  }
  if (isEvent) return [[hop], hop.error ?? ""];
  if (!answer.failure) hop.response_bytes = answer.body.length;
  const content = parsed(answer.body);
  const envelope = content?.uncia;
  if (envelope === null || typeof envelope !== "object") return [[hop], hop.error ?? "", content];
  for (const key of ENVELOPE) if (key in envelope) hop[key] = envelope[key];
  // What has another form is the function's own affair.
  const isHop = (it) => it !== null && typeof it === "object" && "parent" in it;
  const later = Array.isArray(envelope.hops) ? envelope.hops.filter(isHop) : [];
  const reported = later.map((it) => ({ ...it, parent: it.parent || hop.request }));
  return [[hop, ...reported], hop.error ?? "", content];
}

// Undefined if it is no JSON; whatever else a function answers is its own affair.
function parsed(body) {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}

// By AWS's SDK. What is tried again would be two invocations in the rows, and one hop.
async function invoke(stage, name, payload, isEvent) {
  sdk ??= load();
  const command = new sdk.InvokeCommand({
    FunctionName: stage.function,
    Payload: payload,
    InvocationType: isEvent ? "Event" : "RequestResponse",
  });
  const nameStage = (next) => (given) => {
    given.request.headers[STAGE_HEADER] = name;
    return next(given);
  };
  command.middlewareStack.add(nameStage, { step: "build", name: "unciaStage" });
  const answer = await sdk.client.send(command);
  const body = Buffer.from(answer.Payload ?? []);
  const failure = answer.FunctionError ? messageOf(body) : "";
  return { body, request: answer.$metadata.requestId, failure };
}

function load() {
  const { InvokeCommand, LambdaClient } = require("@aws-sdk/client-lambda");
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION } = process.env;
  if (!AWS_ACCESS_KEY_ID || !AWS_SECRET_ACCESS_KEY) {
    throw new Error(
      "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are missing: is this function's network set to platform?",
    );
  }
  const agent = { keepAlive: true, maxSockets: SOCKETS };
  const client = new LambdaClient({
    region: AWS_REGION,
    endpoint: process.env.AWS_ENDPOINT_URL_LAMBDA || undefined,
    credentials: {
      accessKeyId: AWS_ACCESS_KEY_ID,
      secretAccessKey: AWS_SECRET_ACCESS_KEY,
      sessionToken: AWS_SESSION_TOKEN || undefined,
    },
    maxAttempts: 1,
    requestHandler: { httpAgent: agent, httpsAgent: agent, requestTimeout: TIMEOUT_MS },
  });
  return { InvokeCommand, client };
}

// What a function says that failed.
function messageOf(body) {
  const message = parsed(body)?.errorMessage;
  return typeof message === "string" && message ? message : body.toString("utf8").slice(0, MOST_ERROR);
}

// What an answer of HTTP says that failed: the stage that did, or what came.
function refusalOf(status, body) {
  const message = messageOf(body);
  return message.startsWith("stage ")
    ? message
    : `HTTP ${status}: ${body.toString("utf8").slice(0, MOST_ERROR)}`;
}

// By HTTP.
function post(stage, name, payload) {
  const library = stage.url.startsWith("https:") ? https : http;
  agents[stage.url.split(":")[0]] ??= new library.Agent({ keepAlive: true, maxSockets: SOCKETS });
  const options = {
    method: "POST",
    agent: agents[stage.url.split(":")[0]],
    headers: {
      "content-type": "application/json",
      "content-length": payload.length,
      [STAGE_HEADER]: name,
    },
    timeout: TIMEOUT_MS,
  };
  return new Promise((resolve, reject) => {
    const request = library.request(stage.url, options, (answer) => {
      const pieces = [];
      let size = 0;
      answer.on("data", (piece) => {
        size += piece.length;
        if (size > MOST_ANSWER_BYTES) {
          answer.destroy(new Error(`the answer has more than ${MOST_ANSWER_BYTES} bytes`));
        } else {
          pieces.push(piece);
        }
      });
      answer.on("error", reject);
      answer.on("end", () => {
        const body = Buffer.concat(pieces);
        const isGood = Math.floor(answer.statusCode / 100) === 2;
        const id = answer.headers["x-amzn-requestid"];
        resolve({ body, request: id, failure: isGood ? "" : refusalOf(answer.statusCode, body) });
      });
    });
    request.on("timeout", () => request.destroy(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)));
    request.on("error", reject);
    request.end(payload);
  });
}

module.exports = { follow, kernel, router };
