"use strict";
// The home's devices: the service `switches`, which the function must reach.

exports.ask = async (path, options) => {
  const base = process.env.UNCIA_SWITCHES_URL;
  if (!base) throw new Error("this function reaches no devices: name switches in its reach");
  const answer = await fetch(base + path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(`${path}: HTTP ${answer.status}: ${content.error}`);
  return content;
};
