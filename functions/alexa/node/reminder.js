"use strict";
// Reminders: what is needed at a place, kept as a document of the place.

const { ABSENT, ConflictError, Documents } = require("./uncia-documents.cjs");
const skill = require("./skill.js");

const ATTEMPTS = 1000;
const documents = new Documents();

const keyOf = (place) => `reminder/${place.toLowerCase()}`;

async function add({ item, place }, { awsRequestId: request }) {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [kept, revision] = await documents.get(keyOf(place));
    const items = [...(kept?.items ?? []), item];
    try {
      await documents.transact(
        [
          ["put", keyOf(place), revision, { items }],
          ["put", `reminded/${request}`, ABSENT, { item, place }],
        ],
        request,
      );
      return [`I will remind you of ${item} at ${place}.`, items.length];
    } catch (error) {
      if (!(error instanceof ConflictError) || error.key !== keyOf(place)) throw error;
    }
  }
  throw new Error(`others changed the reminders ${ATTEMPTS} times meanwhile`);
}

async function retrieve({ place }) {
  const [kept] = await documents.get(keyOf(place));
  const items = kept?.items ?? [];
  if (!items.length) return [`There is nothing at ${place}.`, 0];
  return [`At ${place}: ${[...new Set(items)].join(", ")}.`, items.length];
}

module.exports = skill({ AddItemIntent: add, RetrieveItemIntent: retrieve });
