"use strict";
// Parameters of the catalogue's Node.js functions: what each takes, and what is refused.
// Copied beside the handler when a function is packaged; functions without parameters do not load it.

const { parameters } = require("./uncia-envelope.js");

// What one of each unit is, in the smallest of its kind. A megabyte is 1024 * 1024 bytes, as it is for
// the platforms that sell memory by it.
const TIME = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9 };
const SIZE = { B: 1, KB: 2 ** 10, KiB: 2 ** 10, MB: 2 ** 20, MiB: 2 ** 20, GB: 2 ** 30, GiB: 2 ** 30 };
const TEXT = /^\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(\p{L}*)\s*$/iu;

class ValueError extends Error {
  name = "ValueError";
}

// A number, in `unit` if there is one: a number already, or text such as "50ms".
function number(initial, low, high, { unit, whole = true } = {}) {
  const suffix = unit ? ` ${unit}` : "";
  const read = (name, given) => {
    const value = typeof given === "string" ? ofText(name, given, unit) : given;
    const shown = JSON.stringify(given);
    if (typeof value !== "number" || Number.isNaN(value)) {
      throw new ValueError(`${name}: ${shown} is not a number${suffix}`);
    }
    if (value < low || value > high) {
      throw new ValueError(`${name}: ${shown} is not between ${low} and ${high}${suffix}`);
    }
    if (whole && !Number.isInteger(value)) {
      throw new ValueError(`${name}: ${shown} is not a whole number${suffix}`);
    }
    return value;
  };
  return { initial, read, echoes: true };
}

// A text or a truth value, of `choices` if there are any. What does not echo is in the answer's
// `parameters` only if it is the default, and in no error.
function choice(initial, choices, { echoes = true } = {}) {
  const read = (name, given) => {
    if (typeof given !== typeof initial || (choices && !choices.includes(given))) {
      const allowed = choices ? `one of ${choices.join(", ")}` : "a text";
      const shown = echoes ? String(JSON.stringify(given)).slice(0, 50) : "it";
      throw new ValueError(`${name}: ${shown} is not ${allowed}`);
    }
    return given;
  };
  return { initial, read, echoes };
}

// An object, or JSON text of one; empty where there is none.
function object({ echoes = true } = {}) {
  const read = (name, given) => {
    let value = given;
    if (typeof given === "string" && given !== "") {
      try {
        value = JSON.parse(given);
      } catch {
        value = undefined;
      }
    }
    if (value !== "" && (value === null || typeof value !== "object" || Array.isArray(value))) {
      throw new TypeError(`${name}: it is no object, nor JSON text of one`);
    }
    return value;
  };
  return { initial: "", read, echoes };
}

function ofText(name, text, unit) {
  const match = TEXT.exec(text);
  const value = match ? Number(match[1]) : NaN;
  if (Number.isNaN(value)) {
    throw new ValueError(`${name}: ${JSON.stringify(text)} is not a number${unit ? ` ${unit}` : ""}`);
  }
  if (!match[2]) return value;
  const units = [TIME, SIZE].find((known) => unit in known) ?? {};
  if (!(match[2] in units)) {
    const allowed = Object.keys(units).join(", ") || "none";
    throw new ValueError(`${name}: unknown unit in ${JSON.stringify(text)}; allowed: ${allowed}`);
  }
  return (value * units[match[2]]) / units[unit];
}

// Every declared parameter, given or default. Throws ValueError, also for an unknown name.
function read(event, declared) {
  const given = parameters(event);
  const unknown = Object.keys(given).filter((name) => !Object.hasOwn(declared, name));
  if (unknown.length) {
    const allowed = Object.keys(declared).join(", ");
    throw new ValueError(`unknown parameter ${JSON.stringify(unknown.sort()[0])}; allowed: ${allowed}`);
  }
  const entries = Object.entries(declared).map(([name, it]) => [
    name,
    Object.hasOwn(given, name) ? it.read(name, given[name]) : it.initial,
  ]);
  return Object.fromEntries(entries);
}

// What an answer has under `parameters`.
function echo(values, declared) {
  const shown = Object.entries(values).filter(
    ([name, value]) => declared[name].echoes || value === declared[name].initial,
  );
  return Object.fromEntries(shown);
}

module.exports = { choice, echo, number, object, read, ValueError };
