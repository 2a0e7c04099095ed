"use strict";
// Reads pages of its package's filler at random.

const { closeSync, fstatSync, openSync, readSync } = require("node:fs");
const { join } = require("node:path");

const { enveloped } = require("./uncia-envelope.js");
const { echo, number, read } = require("./uncia-parameters.cjs");

const PAGE = 4096;
const FILLER = join(__dirname, "uncia-filler.bin");
const DECLARED = { count: number(0, 0, 1_000_000) };

exports.handler = enveloped((event) => {
  const values = read(event, DECLARED);
  const parameters = echo(values, DECLARED);
  const { count } = values;
  if (count === 0) return [{ count, filler: 0, read_ns: 0, parameters }, true];
  const begin = process.hrtime.bigint();
  const [good, filler] = readPages(count);
  const read_ns = Number(process.hrtime.bigint() - begin);
  return [{ count: good, filler, read_ns, parameters }, good === count];
});

// How many of so many pages were whole, and the bytes of the filler.
function readPages(count) {
  const file = open();
  try {
    const { size } = fstatSync(file);
    const pages = Math.floor(size / PAGE);
    if (!pages) throw new Error(`count: the filler has ${size} bytes, less than a page of ${PAGE}`);
    const page = Buffer.alloc(PAGE);
    let good = 0;
    for (let turn = 0; turn < count; turn++) {
      const at = Math.floor(Math.random() * pages) * PAGE;
      if (readSync(file, page, 0, PAGE, at) === PAGE) good++;
    }
    return [good, size];
  } finally {
    closeSync(file);
  }
}

function open() {
  try {
    return openSync(FILLER);
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    throw new Error("count: the package has no filler; give it one (filler: 10MB)");
  }
}
