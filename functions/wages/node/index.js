"use strict";
// Data analysis: one package, deployed as a function for each stage.

const { enveloped, parameters } = require("./uncia-envelope.js");
const { choice, number, object, read } = require("./uncia-parameters.cjs");

const STAGES = {
  ...require("./records.js"),
  ...require("./analyses.js"),
};

const PARAMETERS = {
  stage: choice("insert", Object.keys(STAGES)),
  record: object({ echoes: false }),
  seed: number(1, 0, 1_000_000),
  found: object({ echoes: false }),
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
