// An action of OpenWhisk that calls a function's handler: see __main__.py, which says how.
"use strict";

const uncia = require("./uncia_handler.cjs");
const action = require("./uncia_action.json");

const DEFAULT_DEADLINE_S = 60;

Object.assign(process.env, action.environment);
process.chdir(__dirname);
const loading = uncia.load(action.handler);
// What is wrong with it is said by the invocations.
loading.catch(() => {});

exports.main = async (event) => {
  let handler;
  try {
    handler = await loading;
  } catch (error) {
    return { error: `the function cannot be loaded: ${error && error.message || error}` };
  }
  const until = Number(process.env.__OW_DEADLINE) / 1000 || Date.now() / 1000 + DEFAULT_DEADLINE_S;
  const answer = await uncia.call(handler, event, uncia.context(action.name, process.env.__OW_ACTIVATION_ID, until));
  return answer.type === undefined ? JSON.parse(answer.result) : { error: `${answer.type}: ${answer.message}` };
};
