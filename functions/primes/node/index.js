"use strict";
// Counts primes by Eratosthenes' sieve.

const { enveloped } = require("./uncia-envelope.js");
const { echo, number, read } = require("./uncia-parameters.cjs");

const DECLARED = { exponent: number(7, 1, 8) };
// Below 10, 100, ...: OEIS A006880.
const KNOWN = [4, 25, 168, 1_229, 9_592, 78_498, 664_579, 5_761_455];

exports.handler = enveloped((event) => {
  const values = read(event, DECLARED);
  const end = 10 ** values.exponent;
  const isComposite = new Uint8Array(end);
  let primes = 0;
  for (let candidate = 2; candidate < end; candidate++) {
    if (isComposite[candidate]) continue;
    primes++;
    for (let multiple = candidate * candidate; multiple < end; multiple += candidate) isComposite[multiple] = 1;
  }
  return [{ primes, parameters: echo(values, DECLARED) }, primes === KNOWN[values.exponent - 1]];
});
