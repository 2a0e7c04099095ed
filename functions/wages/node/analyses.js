"use strict";
// Analyses of all wages, one after the other, and their result.

const assert = require("node:assert/strict");

const { ConflictError, Documents } = require("./uncia-documents.cjs");
const { INSURANCE, KEPT, ROLES } = require("./pay.js");

const RESULT = "statistics";
const ATTEMPTS = 1000;

let documents;

// Reads all records, and the newest revision among them.
async function fillup() {
  documents ??= new Documents();
  const records = [];
  let position = 0;
  for await (const [, record, revision] of documents.list("wage/")) {
    records.push(record);
    position = Math.max(position, revision);
  }
  return { found: { position, records, statistics: { count: records.length } } };
}

// Adds something of each role to the statistics, of the roles that there are.
const byRole = (name, compute) => ({ found }) => {
  const values = {};
  for (const role of Object.keys(ROLES)) {
    const records = found.records.filter((it) => it.role === role);
    if (records.length) values[role] = compute(records);
  }
  return { found: { ...found, statistics: { ...found.statistics, [name]: values } } };
};

const sum = (records, key) => records.reduce((total, it) => total + it[key], 0);

const total = byRole("total", (records) => sum(records, "total"));

// Their mean pay after tax, rounded down to ten-thousandths.
const realpay = byRole("realpay", (records) => Math.floor(sum(records, "realpay") / records.length));

// Their merit in percent of their base, rounded down.
const merit = byRole("merit", (records) =>
  Math.floor((100 * sum(records, "merit")) / sum(records, "base")),
);

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
