"use strict";
// Answers with the time of day.

const { enveloped } = require("./uncia-envelope.js");

// A time in UTC by the calendar's rules: eras of 400 years, which begin in March.
function written(unixS) {
  const [days, seconds] = [Math.floor(unixS / 86_400), unixS % 86_400];
  const era = Math.floor((days + 719_468) / 146_097);
  let day = (days + 719_468) % 146_097;
  let year = day - Math.floor(day / 1_460) + Math.floor(day / 36_524) - Math.floor(day / 146_096);
  year = Math.floor(year / 365);
  day -= 365 * year + Math.floor(year / 4) - Math.floor(year / 100);
  let month = Math.floor((5 * day + 2) / 153);
  day -= Math.floor((153 * month + 2) / 5) - 1;
  month += month < 10 ? 3 : -9;
  year += 400 * era + (month <= 2 ? 1 : 0);
  const two = (number) => String(number).padStart(2, "0");
  const clock = [seconds / 3_600, (seconds / 60) % 60, seconds % 60].map((it) => two(Math.floor(it)));
  return `${year}-${two(month)}-${two(day)} ${clock.join(":")}`;
}

exports.handler = enveloped(() => {
  const unixS = Math.floor(Date.now() / 1000);
  const text = new Date(unixS * 1000).toISOString().slice(0, 19).replace("T", " ");
  return [{ text, unix_s: unixS }, text === written(unixS)];
});
