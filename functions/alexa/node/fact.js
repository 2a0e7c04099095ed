"use strict";
// A fact, at random.

const skill = require("./skill.js");

const FACTS = [
  "A year on Mercury is 88 days long.",
  "Venus turns more slowly than it goes around the Sun.",
  "On Mars the Sun looks half as large as on Earth.",
  "Jupiter turns around in less than ten hours.",
  "The Sun holds more than 99 percent of the mass of the Solar System.",
];

module.exports = skill({
  GetFactIntent: () => FACTS[Math.floor(Math.random() * FACTS.length)],
});
