"use strict";
// Analyses of all wages, one after the other, and their result.

const assert = require("node:assert/strict");

const { ConflictError, Documents } = require("./uncia-documents.cjs");
const { INSURANCE, KEPT } = require("./pay.js");

const RESULT = "statistics";
const ATTEMPTS = 1000;

let documents;

const AMOUNTS = ["base", "merit", "total", "realpay"];

// Reads all records: of each role how many there are and the sums of their amounts, and the newest revision among
// them. What is handed on does not grow with the records, as events of a sequence may be only so long.
async function fillup() {
  documents ??= new Documents();
  const roles = {};
  let count = 0;
  let position = 0;
  for await (const [, record, revision] of documents.list("wage/")) {
    const sums = (roles[record.role] ??= { people: 0, base: 0, merit: 0, total: 0, realpay: 0 });
    sums.people += 1;
    for (const amount of AMOUNTS) sums[amount] += record[amount];
    count += 1;
    position = Math.max(position, revision);
  }
  return { found: { position, roles, statistics: { count } } };
}

// Adds something of each role to the statistics, of the roles that there are.
const byRole = (name, compute) => ({ found }) => {
  const values = {};
  for (const [role, sums] of Object.entries(found.roles)) values[role] = compute(sums);
  return { found: { ...found, statistics: { ...found.statistics, [name]: values } } };
};

const total = byRole("total", (sums) => sums.total);

// Their mean pay after tax, rounded down to ten-thousandths.
const realpay = byRole("realpay", (sums) => Math.floor(sums.realpay / sums.people));

// Their merit in percent of their base, rounded down.
const merit = byRole("merit", (sums) => Math.floor((100 * sums.merit) / sums.base));

// Writes the statistics by their revision, unless those that are there know of newer records.
async function result({ found: { position, statistics } }, { awsRequestId }) {
  documents ??= new Documents();
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [kept, revision] = await documents.get(RESULT);
    // Of two that know the newest record, the one that knows more had no other left to come.
    const isOlder = kept && (kept.position > position || (kept.position === position && kept.count > statistics.count));
    if (isOlder) return { written: false };
    try {
      await documents.put(RESULT, { position, ...statistics }, revision, awsRequestId);
      return { written: true };
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
    }
  }
  throw new Error(`others changed the statistics ${ATTEMPTS} times meanwhile`);
}

// Computes the statistics anew, in another way: from what was asked for, in whole numbers of any size.
async function verify() {
  documents ??= new Documents();
  const roles = new Map();
  let count = 0;
  for await (const [, { role, base, merit: more }] of documents.list("wage/")) {
    const of = roles.get(role) ?? { people: 0n, base: 0n, merit: 0n };
    of.people += 1n;
    of.base += BigInt(base);
    of.merit += BigInt(more);
    roles.set(role, of);
    count += 1;
  }
  const expected = { count, total: {}, realpay: {}, merit: {} };
  for (const [role, of] of roles) {
    expected.total[role] = Number(of.base + of.merit + of.people * BigInt(INSURANCE));
    expected.realpay[role] = Number((BigInt(KEPT) * (of.base + of.merit)) / of.people);
    expected.merit[role] = Number((100n * of.merit) / of.base);
  }
  const [kept] = await documents.get(RESULT);
  const { position, ...statistics } = kept ?? {};
  assert.deepEqual(statistics, expected, "the statistics are not those of the records");
  assert.ok(position > 0);
  return { statistics };
}

module.exports = { fillup, total, realpay, merit, result, verify };
