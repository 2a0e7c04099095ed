"use strict";
// Memory that a process holds on purpose, for functions that are to have a given amount of it.
// Copied beside the handler when a function is packaged; what does not load it pays nothing at a cold start.

const { readFileSync } = require("node:fs");

// It is held in pieces, so that little is taken anew when it is to hold less, and stays between
// invocations, as a program's memory does.
const PIECE = 8 * 2 ** 20;
const PAGE = 4096;
const held = [];

// The bytes of this process that are in memory now; 0 where the kernel does not tell.
function resident() {
  try {
    return Number(readFileSync("/proc/self/statm", "ascii").split(" ")[1]) * PAGE;
  } catch {
    return 0;
  }
}

// Brings the process to `size` bytes of memory, as far as what it holds on purpose allows. Throws
// RangeError when there is no more of it, and Error on Node.js 18, which would give nothing back.
function hold(size) {
  if (size > 0 && !("resize" in ArrayBuffer.prototype)) {
    throw new Error("memory: Node.js 20 or newer can hold a given amount");
  }
  // A buffer of no bytes is given back at once, others when the collector likes.
  while (held.length && resident() > size) held.pop().resize(0);
  const missing = Math.floor(Math.max(0, size - resident()) / PAGE) * PAGE;
  for (let offset = 0; offset < missing; offset += PIECE) {
    const bytes = Math.min(PIECE, missing - offset);
    const piece = new ArrayBuffer(0, { maxByteLength: bytes });
    piece.resize(bytes);
    // Every page of it is in use.
    new Uint8Array(piece).fill(1);
    held.push(piece);
  }
}

module.exports = { hold, resident };
