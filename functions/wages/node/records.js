"use strict";
// Records of wages: checked, put into their form, and written, each by a function that invokes the next.

const { createHash } = require("node:crypto");

const { ABSENT, Documents } = require("./uncia-documents.cjs");
const { INSURANCE, KEPT, ROLES } = require("./pay.js");

const MOST_BASE = 1_000_000;
const MOST_CHARACTERS = 100;

let documents;

async function insert({ record, seed }, { awsRequestId: id }, stages) {
  const wage = record === "" ? made(id, seed) : record;
  check(wage);
  const { realpay } = await stages.call("format", { record: { ...wage, id } });
  return { id, realpay };
}

// A record of the id and the seed, always the same.
function made(id, seed) {
  const bytes = createHash("sha256").update(`${seed} ${id}`).digest();
  const names = Object.keys(ROLES);
  const role = names[bytes[0] % names.length];
  const merit = bytes.readUInt32BE(4) % ROLES[role].merit;
  return { name: `person-${bytes.toString("hex", 8, 12)}`, role, base: ROLES[role].base, merit };
}

function check({ name, role, base, merit, ...others }) {
  const [other] = Object.keys(others);
  if (other !== undefined) {
    throw new RangeError(`record: ${shown(other)} is none of name, role, base and merit`);
  }
  if (typeof name !== "string" || !name || name.length > MOST_CHARACTERS) {
    throw new RangeError(`name: it must be a text of 1 to ${MOST_CHARACTERS} characters`);
  }
  if (typeof role !== "string" || !Object.hasOwn(ROLES, role)) {
    throw new RangeError(`role: ${shown(role)} is none of ${Object.keys(ROLES).join(", ")}`);
  }
  whole("base", base, 1, MOST_BASE);
  whole("merit", merit, 0, ROLES[role].merit - 1);
}

function whole(name, value, low, high) {
  if (!Number.isInteger(value) || value < low || value > high) {
    throw new RangeError(`${name}: ${shown(value)} is no whole number from ${low} to ${high}`);
  }
}

const shown = (value) => String(JSON.stringify(value)).slice(0, 50);

async function format({ record }, _context, stages) {
  const { base, merit } = record;
  const wage = { ...record, total: INSURANCE + base + merit, realpay: KEPT * (base + merit) };
  await stages.call("write", { record: wage });
  return { realpay: wage.realpay };
}

async function write({ record: { id, ...wage } }, { awsRequestId }) {
  documents ??= new Documents();
  await documents.put(`wage/${id}`, wage, ABSENT, awsRequestId);
  return {};
}

module.exports = { insert, format, write };
