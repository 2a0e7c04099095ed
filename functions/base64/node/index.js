"use strict";
// Encodes a text of the letter a in base64 and decodes it, many times.

const { enveloped } = require("./uncia-envelope.js");
const { echo, number, read } = require("./uncia-parameters.cjs");

const DECLARED = {
  size: number(1_000_000, 1, 16 * 2 ** 20, { unit: "B" }),
  rounds: number(100, 1, 10_000),
};

exports.handler = enveloped((event) => {
  const values = read(event, DECLARED);
  const { size, rounds } = values;
  const text = Buffer.alloc(size, "a");
  let [encoded, decoded, code, back] = [0, 0, "", text];
  for (let round = 0; round < rounds; round++) {
    code = text.toString("base64");
    encoded += code.length;
  }
  for (let round = 0; round < rounds; round++) {
    back = Buffer.from(code, "base64");
    decoded += back.length;
  }
  const whole = Math.floor(size / 3);
  const valid = code.startsWith("YWFh".repeat(whole)) && back.equals(text)
    && encoded === rounds * 4 * Math.ceil(size / 3) && decoded === rounds * size;
  return [{ encoded, decoded, parameters: echo(values, DECLARED) }, valid];
});
