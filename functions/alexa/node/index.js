"use strict";
// Alexa skills: one package, deployed as a function for each stage.

const { enveloped } = require("./uncia-envelope.js");
const { choice, object, read } = require("./uncia-parameters.cjs");

const STAGES = ["frontend", "interact", "fact", "reminder", "smarthome", "device", "verify"];
const PARAMETERS = {
  stage: choice("frontend", STAGES),
  utterance: choice("open fact to tell me a fact", undefined, { echoes: false }),
  skill: choice("fact"),
  request: object({ echoes: false }),
  device: choice("door"),
  position: choice("ON", ["ON", "OFF"]),
};

exports.handler = enveloped(
  async (event, context, stages) => {
    const given = read(event, PARAMETERS);
    // Each loads what it needs, and no other stage's packages.
    const work = require(`./${given.stage}.js`);
    return [{ stage: given.stage, ...(await work(given, context, stages)) }, true];
  },
  { routes: true },
);
