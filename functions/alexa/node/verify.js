"use strict";
// Checks what skills have left behind: asks the devices, and counts the reminders.

const assert = require("node:assert/strict");

const CHECKS = {
  fact: async () => ({}),

  // Every request that added something is in the list of its place, once.
  reminder: async () => {
    const { Documents } = require("./uncia-documents.cjs");
    const documents = new Documents();
    // A place may have any name, such as constructor, which objects have already.
    const kept = new Map();
    for await (const [key, { items }] of documents.list("reminder/")) {
      kept.set(key.slice("reminder/".length), items.toSorted());
    }
    const noted = new Map();
    for await (const [, { item, place }] of documents.list("reminded/")) {
      const name = place.toLowerCase();
      noted.set(name, [...(noted.get(name) ?? []), item]);
    }
    for (const items of noted.values()) items.sort();
    assert.deepEqual(kept, noted, "the reminders are not those that were added");
    return { count: [...kept.values()].flat().length };
  },

  // All devices stand alike, and each was switched as often as the others.
  smarthome: async ({ position }) => {
    const devices = await require("./switches.js").ask("/");
    assert.deepEqual(Object.keys(devices).sort(), require("./devices.json").toSorted());
    const stand = new Set(Object.values(devices).map((it) => it.switch));
    assert.deepEqual([...stand], [position], "not all devices are switched");
    const times = new Set(Object.values(devices).map((it) => it.times));
    assert.equal(times.size, 1, "some devices were switched more often than others");
    return { count: [...times][0] };
  },
};

module.exports = async (given) => {
  if (!Object.hasOwn(CHECKS, given.skill)) {
    throw new TypeError(`skill: there is none called ${JSON.stringify(given.skill.slice(0, 50))}`);
  }
  return CHECKS[given.skill](given);
};
