"use strict";
// Makes an intent with slots of an utterance, by the skill's model, and asks the skill.

const { randomUUID } = require("node:crypto");

const MODELS = require("./models.json");

module.exports = async ({ skill, utterance }, _context, stages) => {
  // Not a name of what every object has.
  const model = Object.hasOwn(MODELS, skill) ? MODELS[skill] : undefined;
  if (!model) return { understood: false, speech: "Sorry, I do not know that skill." };
  const intent = understand(model, utterance);
  if (!intent) return { understood: false, speech: `Sorry, ${skill} cannot do that.` };
  const { speech, count } = await stages.call(skill, { request: envelope(skill, intent) });
  return { understood: true, speech, count };
};

// The intent whose sample says most of the utterance in its own words; undefined if none fits.
function understand(model, utterance) {
  let best;
  for (const [name, samples] of Object.entries(model)) {
    for (const sample of samples) {
      const match = pattern(sample).exec(utterance);
      const literals = sample.replace(/\{\w+\}/g, "").length;
      if (match && (!best || literals > best.literals)) best = { name, literals, slots: match.groups ?? {} };
    }
  }
  if (!best) return undefined;
  const slots = Object.entries(best.slots).map(([name, value]) => [name, { name, value }]);
  return { name: best.name, confirmationStatus: "NONE", slots: Object.fromEntries(slots) };
}

// A sample such as "remind me of {item} at {place}" as a pattern.
function pattern(sample) {
  const text = sample.replace(/\s+/g, "\\s+").replace(/\{(\w+)\}/g, "(?<$1>\\S.*?)");
  return new RegExp(`^\\s*${text}\\s*[.!?]?\\s*$`, "i");
}

// What Alexa's service sends to a skill.
function envelope(skill, intent) {
  const application = { applicationId: `amzn1.ask.skill.${skill}` };
  const user = { userId: "amzn1.ask.account.someone" };
  return {
    version: "1.0",
    session: { new: true, sessionId: randomUUID(), application, user, attributes: {} },
    context: { System: { application, user, apiEndpoint: "", apiAccessToken: "" } },
    request: {
      type: "IntentRequest",
      requestId: randomUUID(),
      timestamp: new Date().toISOString(),
      locale: "en-US",
      dialogState: "COMPLETED",
      intent,
    },
  };
}
