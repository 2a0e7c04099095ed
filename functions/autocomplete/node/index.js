"use strict";
// Completes the beginning of a word by binary search in a sorted list of "folded*original".

const { enveloped } = require("./uncia-envelope.js");
const { choice, echo, number, read } = require("./uncia-parameters.cjs");

const DECLARED = { words: number(4_000, 1, 200_000), term: choice("ka") };
const MOST = 20;
const SYLLABLES = ["ka", "lo", "mi", "Ne", "ru", "sa", "to", "vé"];
const lists = new Map();
const MOST_CHECKED = 1_000;
const checked = new Map(); // by the parameters, what was found right

// All words of so many syllables, then of one more: number `index` in base eight, a syllable a digit.
function word(index) {
  let [length, first] = [1, 0];
  while (index - first >= SYLLABLES.length ** length) first += SYLLABLES.length ** length++;
  const digits = (index - first).toString(SYLLABLES.length).padStart(length, "0");
  return [...digits].map((digit) => SYLLABLES[digit]).join("");
}

// As it is compared: without accents and in small letters.
function fold(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

function sorted(count) {
  if (!lists.has(count)) {
    const originals = Array.from({ length: count }, (_, index) => word(index));
    lists.set(count, originals.map((it) => `${fold(it)}*${it}`).sort());
  }
  return lists.get(count);
}

// Where the entries begin that are not before a text.
function lowerBound(entries, text) {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (entries[middle] < text) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The same words by a look at each.
function expected(entries, term) {
  const all = entries.filter((entry) => entry.startsWith(term));
  return all.slice(0, MOST).map((entry) => entry.slice(entry.indexOf("*") + 1));
}

exports.handler = enveloped((event) => {
  const values = read(event, DECLARED);
  const entries = sorted(values.words);
  const term = fold(values.term);
  const found = [];
  for (let at = lowerBound(entries, term); at < entries.length && found.length < MOST; at++) {
    if (!entries[at].startsWith(term)) break;
    found.push(entries[at].slice(entries[at].indexOf("*") + 1));
  }
  // To look at every word takes far longer than the search.
  const key = `${values.words} ${term}`;
  const right = checked.get(key) ?? expected(entries, term);
  const valid = found.length === right.length && found.every((it, index) => it === right[index]);
  if (valid && !checked.has(key)) {
    if (checked.size === MOST_CHECKED) checked.clear();
    checked.set(key, right);
  }
  return [{ words: found, found: found.length, parameters: echo(values, DECLARED) }, valid];
});
