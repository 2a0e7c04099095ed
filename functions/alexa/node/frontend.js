"use strict";
// Hears what is said, and for which skill: "open smarthome to ...", "ask fact for ...".

const SAID = /^\s*(?:alexa,?\s+)?(?:ask|open|launch|start|talk to|tell)\s+(\S+)\s+(?:to|for|that)\s+(.+?)\s*$/i;
const MOST_CHARACTERS = 1000;

module.exports = async ({ utterance }, _context, stages) => {
  const match = utterance.length <= MOST_CHARACTERS && SAID.exec(utterance);
  if (!match) return { understood: false, speech: "Sorry, I did not understand that." };
  const { understood, speech, count } = await stages.call("interact", {
    skill: match[1].toLowerCase(),
    utterance: match[2],
  });
  return { understood, speech, count };
};
