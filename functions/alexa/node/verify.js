"use strict";
// Checks what skills have left behind: asks the devices, and counts the reminders.

const assert = require("node:assert/strict");

const CHECKS = {
  fact: async () => ({}),

  // Every request that added something is in the list of its place, once.
  reminder: async () => {
    const { Documents } = require("./uncia-documents.cjs");
    const documents = new Documents();
    const kept = {};
    for await (const [key, { items }] of documents.list("reminder/")) {
      kept[key.slice("reminder/".length)] = items.toSorted();
    }
    const noted = {};
    for await (const [, { item, place }] of documents.list("reminded/")) {
      (noted[place.toLowerCase()] ??= []).push(item);
    }
    for (const items of Object.values(noted)) items.sort();
    assert.deepEqual(kept, noted, "the reminders are not those that were added");
    return { count: Object.values(kept).flat().length };
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
