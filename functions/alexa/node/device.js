"use strict";
// Switches one device of the home, over HTTP.

const { ask } = require("./switches.js");

module.exports = async ({ device, position }) => {
  const { switch: now } = await ask(`/${encodeURIComponent(device)}`, {
    method: "PUT",
    body: JSON.stringify({ switch: position }),
  });
  if (now !== position) throw new Error(`${device} stands on ${now}, not on ${position}`);
  return { device, position: now };
};
