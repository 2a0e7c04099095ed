"use strict";
// Data analysis: one package, deployed as a function for each stage.

const { enveloped, parameters } = require("./uncia-envelope.js");
const { choice, number, read } = require("./uncia-parameters.cjs");

const STAGES = {
  ...require("./records.js"),
  ...require("./analyses.js"),
};

// An object, or JSON text of one; empty where there is none.
const object = {
  initial: "",
  echoes: false,
  read: (name, given) => {
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
  },
};

const PARAMETERS = {
  stage: choice("insert", Object.keys(STAGES)),
  record: object,
  seed: number(1, 0, 1_000_000),
  found: object,
};

exports.handler = enveloped(
  async (event, context, stages) => {
    // Which change began the analyses does not matter: they are of all records.
    const { change: _, ...asked } = parameters(event);
    const given = read(asked, PARAMETERS);
    const answer = await STAGES[given.stage](given, context, stages);
    return [{ stage: given.stage, ...answer }, true];
  },
  { routes: true },
);
