"use strict";
// A skill made of intents, by Amazon's kit: intent -> (slots, context, stages) => speech or [speech, count].

const Alexa = require("ask-sdk-core");

// Speech is SSML, in which these have a meaning.
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const CHARACTERS = Object.fromEntries(Object.entries(ENTITIES).map(([it, entity]) => [entity, it]));
const toSsml = (text) => text.replace(/[&<>]/g, (it) => ENTITIES[it]);
const ofSsml = (ssml) => ssml.replace(/<[^>]*>/g, "").replace(/&(?:amp|lt|gt);/g, (it) => CHARACTERS[it]);

module.exports = (intents) => {
  const handlers = (context, stages, counted) =>
    Object.entries(intents).map(([name, work]) => ({
      canHandle: (input) =>
        Alexa.getRequestType(input.requestEnvelope) === "IntentRequest" &&
        Alexa.getIntentName(input.requestEnvelope) === name,
      handle: async (input) => {
        const given = input.requestEnvelope.request.intent.slots ?? {};
        const slots = Object.fromEntries(Object.values(given).map((it) => [it.name, it.value]));
        const [speech, count] = [await work(slots, context, stages)].flat();
        counted.count = count;
        return input.responseBuilder.speak(toSsml(speech)).getResponse();
      },
    }));
  return async ({ request }, context, stages) => {
    if (request === "") throw new TypeError("request: a skill is asked by one of Alexa's requests");
    const counted = {};
    const skill = Alexa.SkillBuilders.custom()
      .addRequestHandlers(...handlers(context, stages, counted))
      .create();
    const { response } = await skill.invoke(request, context);
    return { speech: ofSsml(response.outputSpeech.ssml), ...counted };
  };
};
