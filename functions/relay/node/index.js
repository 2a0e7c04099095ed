"use strict";
// Takes a payload from its event or from the store, and hands the next one on.
//
// As text a payload is five fields with blanks between: how it was handed on, when that began (Unix time
// in ns), its bytes, their SHA-256, and the bytes in base64 or the key of an object.

const { createHash, randomBytes, randomFillSync } = require("node:crypto");
const { Readable } = require("node:stream");

const objects = require("./objects.js");
const { enveloped, unixNs } = require("./uncia-envelope.js");
const { choice, echo, number, read } = require("./uncia-parameters.cjs");

// Payloads up to this are whole in memory, so that neither making nor checking them is part of the
// transfer; larger ones are made and checked while they pass.
const MOST_IN_MEMORY = 128 * 2 ** 20;
const PIECE = 2 ** 20;
const MOST = 5 * 2 ** 30;
const PAYLOAD = /^(inline|store) (\d+) (\d+) (\S+) ([^]*)$/;

const DECLARED = {
  payload: choice("", undefined, { echoes: false }),
  size: number(1024, 0, MOST, { unit: "B" }),
  by: choice("inline", ["inline", "store", "size"]),
  threshold: number(100 * 1024, 0, MOST, { unit: "B" }),
  remove: choice(true, [true, false]),
};

exports.handler = enveloped(async (event) => {
  const values = read(event, DECLARED);
  const { payload, size, threshold, remove } = values;
  const result = { taken: 0, size, parameters: echo(values, DECLARED) };
  if (payload) {
    const [sent, taken, received] = await take(payload, remove);
    result.taken = taken;
    result.uncia = { spans: [["transfer", sent, received]] };
  }
  const bySize = size <= threshold ? "inline" : "store";
  const by = values.by === "size" ? bySize : values.by;
  [result.payload, result.sha256] = await handOn(size, by);
  return [result, true];
});

// When the payload was sent, its bytes, and when all were here; throws if they are others.
async function take(payload, remove) {
  const match = PAYLOAD.exec(payload);
  if (!match) throw new Error("payload: this is no payload of a relay; hand on {{answer.payload}}");
  const [, by, sent, sizeText, digest, content] = match;
  const size = Number(sizeText);
  let made;
  if (by === "inline") {
    const data = Buffer.from(content, "base64");
    const received = unixNs();
    made = [createHash("sha256").update(data), data.length, received];
  } else {
    made = await load(content, size);
  }
  const [hash, count, received] = made;
  if (count !== size) throw new Error(`payload: it has ${count} bytes, not ${size} as was sent`);
  const received_digest = hash.digest("hex");
  if (received_digest !== digest) {
    throw new Error(`payload: its SHA-256 is ${received_digest}, not ${digest} as was sent`);
  }
  if (by === "store" && remove) await objects.remove(content);
  return [Number(sent), size, received];
}

// The digest and the bytes of an object, and when all were here.
async function load(key, size) {
  const hash = createHash("sha256");
  const pieces = [];
  let count = 0;
  for await (const piece of await objects.get(key)) {
    count += piece.length;
    if (size <= MOST_IN_MEMORY && count <= size) pieces.push(piece);
    else hash.update(piece);
  }
  const received = unixNs();
  for (const piece of pieces) hash.update(piece);
  return [hash, count, received];
}

// The next payload as the next function takes it, and its digest.
async function handOn(size, by) {
  if (size === 0) return ["", createHash("sha256").digest("hex")];
  const isWhole = size <= MOST_IN_MEMORY;
  if (by === "inline") {
    if (!isWhole) throw new Error(`size: ${size} bytes are too many to hand on inline; use store`);
    const data = randomBytes(size);
    const digest = createHash("sha256").update(data).digest("hex");
    const sent = unixNs();
    return [`inline ${sent} ${size} ${digest} ${data.toString("base64")}`, digest];
  }
  const { prefix } = objects.store();
  const key = `${prefix}relay/${randomBytes(16).toString("hex")}`;
  const hash = createHash("sha256");
  const data = isWhole ? randomBytes(size) : undefined;
  if (data) hash.update(data);
  const sent = unixNs();
  await objects.put(key, data ?? Readable.from(pieces(size, hash)), size);
  const digest = hash.digest("hex");
  return [`store ${sent} ${size} ${digest} ${key}`, digest];
}

// Bytes that do not compress, digested as they are made.
function* pieces(size, hash) {
  for (let left = size; left > 0; left -= PIECE) {
    const piece = randomFillSync(Buffer.allocUnsafeSlow(Math.min(PIECE, left)));
    hash.update(piece);
    yield piece;
  }
}
