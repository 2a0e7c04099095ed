"use strict";
// Alexa skills: one package, deployed as a function for each stage.

const { enveloped } = require("./uncia-envelope.js");
const { choice, read } = require("./uncia-parameters.cjs");

const STAGES = ["frontend", "interact", "fact", "reminder", "smarthome", "device", "verify"];
const PARAMETERS = {
  stage: choice("frontend", STAGES),
  utterance: choice("open fact to tell me a fact", undefined, { echoes: false }),
  skill: choice("fact"),
  request: { initial: "", read: readRequest, echoes: false },
  device: choice("door"),
  position: choice("ON", ["ON", "OFF"]),
};

// An object, or JSON text of one; empty of stages that take none.
function readRequest(name, given) {
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
}

exports.handler = enveloped(
  async (event, context, stages) => {
    const given = read(event, PARAMETERS);
    // Each loads what it needs, and no other stage's packages.
    const work = require(`./${given.stage}.js`);
    return [{ stage: given.stage, ...(await work(given, context, stages)) }, true];
  },
  { routes: true },
);
