"use strict";
// A smart home: whoever knows the password switches all devices at once, each by a function of its own.

const { createHash, timingSafeEqual } = require("node:crypto");
const skill = require("./skill.js");

const DEVICES = require("./devices.json");
// Of "taylor swift", unless the function's own environment has another.
const PASSWORD = "ab6c580ee143cfc7ecab073a87f641db6ea5f398f97a668615ad3eda108471ec";

function isRight(password) {
  const wanted = process.env.PASSWORD_SHA256 ?? PASSWORD;
  const given = createHash("sha256").update(password.toLowerCase()).digest("hex");
  return given.length === wanted.length && timingSafeEqual(Buffer.from(given), Buffer.from(wanted));
}

const switchTo = (position) => async ({ password }, _context, stages) => {
  if (!isRight(password)) return "Sorry, that password is wrong.";
  const done = await Promise.all(DEVICES.map((device) => stages.call(device, { device, position })));
  return done.map(({ device, position: now }) => `${device}: switch ${now}`).join(", ");
};

module.exports = skill({ SwitchOnIntent: switchTo("ON"), SwitchOffIntent: switchTo("OFF") });
