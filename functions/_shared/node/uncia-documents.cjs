"use strict";
// Documents: JSON with a revision, in the service `documents`, which the function must reach.
// Copied beside the handler when a function is packaged. It needs the package `redis` (4 or newer), and is
// loaded by functions that require it alone. Revisions are numbers that only grow, over all documents:
// the position of a change is the revision that it gave.

const { createClient } = require("redis");

const TIMEOUT_MS = 30_000;
const PAGE = 1000;
const IDLE_MS = 1000; // after which a server may have closed the connection
const ABSENT = 0; // the revision of a document that is not there

// The service cannot do what it was asked for; the message says why.
class DocumentsError extends Error {
  name = "DocumentsError";
}

// A document has another revision than was asked for, so nothing was done.
class ConflictError extends DocumentsError {
  name = "ConflictError";

  constructor(key, revision) {
    super(`${JSON.stringify(key)} has revision ${revision} by now: read it again`);
    this.key = key;
    this.revision = revision;
  }
}

// The id of the request that is being served, "" where none is known: the root of its trace, which runtimes have
// in the environment.
function requestId() {
  const root = /Root=1-([0-9a-f]{8})-([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})/;
  return (process.env._X_AMZN_TRACE_ID ?? "").match(root)?.slice(1).join("-") ?? "";
}

// The documents that this function reaches.
class Documents {
  #keys;
  #options;
  #script;
  #client;
  #used = 0;

  // Connects at the first request. Throws DocumentsError where there is no such service.
  constructor() {
    const set = (name) => {
      const value = process.env[name];
      if (value === undefined) {
        throw new DocumentsError(`${name} is not set: name documents in the function's reach`);
      }
      return value;
    };
    const prefix = set("UNCIA_DOCUMENTS_PREFIX");
    this.#script = set("UNCIA_DOCUMENTS_SCRIPT");
    this.#keys = ["documents", "order", "changes", "last"].map((it) => prefix + it);
    this.#options = {
      url: set("REDIS_URL"),
      username: process.env.UNCIA_DOCUMENTS_USER || undefined,
      password: process.env.UNCIA_DOCUMENTS_PASSWORD || undefined,
      database: Number(process.env.UNCIA_DOCUMENTS_DATABASE || 0),
      RESP: 2,
      // A transaction whose answer was lost may have been carried out: nothing is sent again.
      disableOfflineQueue: true,
      socket: { reconnectStrategy: false, connectTimeout: TIMEOUT_MS },
    };
  }

  // A document and its revision, [value, revision]; [null, ABSENT] if there is none.
  async get(key) {
    return parsed(await this.#ask("HGET", this.#keys[0], key));
  }

  // Writes a document, if it still has `revision` where one is given; its new revision.
  // `writer` is noted in the change: the id of the invocation, unless another is given, by which the platform
  // tells whose change it is. Throws ConflictError.
  async put(key, value, revision, writer = requestId()) {
    return (await this.transact([["put", key, revision, value]], writer))[0];
  }

  // Removes a document, if it still has `revision` where one is given; the position of the change, or
  // ABSENT if there was none. Throws ConflictError.
  async delete(key, revision, writer = requestId()) {
    return (await this.transact([["delete", key, revision]], writer))[0];
  }

  // Carries out all steps at once, or none: the revision of each. A step is ["put", key, revision, value],
  // ["delete", key, revision] or ["check", key, revision], with null or undefined for a revision that may
  // be any. Throws ConflictError if a document has another one.
  async transact(steps, writer = requestId()) {
    const words = [];
    for (const [kind, key, revision, ...value] of steps) {
      if (!["put", "delete", "check"].includes(kind) || (value.length === 1) !== (kind === "put")) {
        throw new TypeError(`${kind} with ${value.length} values is no step of a transaction`);
      }
      if (!key) throw new TypeError("a document's key must not be empty");
      const text = value.length ? JSON.stringify(value[0], finite) : "";
      if (text === undefined) throw new TypeError(`${JSON.stringify(key)}: the value is no JSON`);
      words.push(kind, key, revision ?? "", text);
    }
    const [outcome, ...rest] = await this.#evaluate("transact", writer, ...words);
    if (outcome === "conflict") throw new ConflictError(rest[0], Number(rest[1]));
    return rest.map(Number);
  }

  // Yields the documents whose keys begin so, by the keys' bytes: [key, value, revision].
  // What is written meanwhile may be missed or not, where it lies behind.
  async *list(prefix = "", page = PAGE) {
    for (let after = ""; ; ) {
      const words = await this.#evaluate("list", prefix, after, page);
      if (!words.length) return;
      for (let index = 0; index < words.length; index += 2) {
        yield [words[index], ...parsed(words[index + 1])];
      }
      after = words[words.length - 2];
    }
  }

  // The next changes behind a position, oldest first, at most `limit`; [] if there are none. Each is
  // {position, key, kind, value, writer}. With `waitS` it waits so long, less than 30 s, for one, and holds up
  // this object's other requests meanwhile.
  async changes(after = 0, limit = PAGE, waitS = 0) {
    const block = waitS > 0 ? ["BLOCK", Math.max(1, Math.round(waitS * 1000))] : [];
    const words = ["COUNT", limit, ...block, "STREAMS", this.#keys[2], `${after}-0`];
    const streams = (await this.#ask("XREAD", ...words)) ?? [];
    return streams.flatMap(([, entries]) => entries.map(change));
  }

  // Ends the connection; the next request makes another.
  async close() {
    this.#drop();
  }

  #evaluate(...words) {
    return this.#ask("EVALSHA", this.#script, this.#keys.length, ...this.#keys, ...words);
  }

  // Sends a command. Throws DocumentsError where the server does not do it.
  async #ask(...words) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new DocumentsError("the documents' server does not answer")), TIMEOUT_MS);
    });
    const answered = this.#connected().then((client) => client.sendCommand(words.map(String)));
    // Of the loser nobody hears.
    answered.catch(() => {});
    late.catch(() => {});
    try {
      return await Promise.race([answered, late]);
    } catch (error) {
      // After these nobody knows what the connection's next answer would be to.
      if (error instanceof DocumentsError || !/^[A-Z]+ /.test(error.message)) this.#drop();
      throw explained(error);
    } finally {
      clearTimeout(timer);
      this.#used = Date.now();
    }
  }

  // Ends the connection without waiting for it.
  #drop() {
    const client = this.#client;
    this.#client = undefined;
    if (client) client.then((it) => it.disconnect()).catch(() => {});
  }

  async #connected() {
    this.#client ??= (async () => {
      const client = createClient(this.#options);
      // Told by the request that fails.
      client.on("error", () => {});
      await client.connect();
      return client;
    })();
    const connecting = this.#client;
    try {
      const client = await connecting;
      // What a server that closed the connection meanwhile would fail, is not sent yet.
      const idle = this.#used !== 0 && Date.now() - this.#used > IDLE_MS;
      if (client.isReady && !(idle && (await gone(client)))) return client;
      client.disconnect().catch(() => {});
      this.#used = 0;
    } catch (error) {
      if (this.#client === connecting) this.#client = undefined;
      throw explained(error);
    }
    // It went away since: what was asked was answered or has failed.
    if (this.#client === connecting) this.#client = undefined;
    return this.#connected();
  }
}

// Whether the other side of a connection does not answer any more.
async function gone(client) {
  return client.sendCommand(["PING"]).then(
    () => false,
    () => true,
  );
}

// Refuses numbers that JSON does not have, which JSON.stringify would write as null.
function finite(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${JSON.stringify(name)} is ${value}, which is no JSON`);
  }
  return value;
}

function explained(error) {
  if (error instanceof DocumentsError) return error;
  const text = String(error.message);
  if (text.startsWith("NOSCRIPT")) {
    return new DocumentsError("the documents' server has forgotten its script: it was started again or emptied");
  }
  if (text.startsWith("OOM")) {
    return new DocumentsError(
      "the documents' server is full, and nothing was done: its memory must be raised",
    );
  }
  if (/^[A-Z]+ /.test(text)) return new DocumentsError(`the documents' server refuses: ${text}`);
  return new DocumentsError(
    `the documents' server cannot be reached, or went away before it answered: ${text || error.code}`,
  );
}

// Value and revision of what the server holds: the revision, a blank, and JSON.
function parsed(held) {
  if (held === null) return [null, ABSENT];
  const blank = held.indexOf(" ");
  return [JSON.parse(held.slice(blank + 1)), Number(held.slice(0, blank))];
}

// A change as the stream has it: its position, and a flat list of fields.
function change([position, fields]) {
  const entries = [];
  for (let index = 0; index < fields.length; index += 2) {
    entries.push([fields[index], fields[index + 1]]);
  }
  const { key, kind, json, writer } = Object.fromEntries(entries);
  return {
    position: Number(position.split("-")[0]),
    key,
    kind,
    value: json ? JSON.parse(json) : null,
    writer,
  };
}

module.exports = { ABSENT, ConflictError, Documents, DocumentsError };
