"use strict";
// What wages are made of. Amounts are whole; pay after tax is in ten-thousandths, so that it is exact.

exports.INSURANCE = 1500;
// Of a wage, in ten-thousandths: 0.0387 is tax.
exports.KEPT = 10_000 - 387;

// Of each role: the base, and what the merit is below.
exports.ROLES = {
  staff: { base: 5000, merit: 5000 },
  teamleader: { base: 8000, merit: 10_000 },
  manager: { base: 8000, merit: 50_000 },
};
