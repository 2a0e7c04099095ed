"use strict";
// Burns a given amount of CPU time, measured here. A loop count calibrated elsewhere would be wrong on
// another CPU, runtime or allocation.

const { enveloped } = require("./uncia-envelope.js");
const { hold } = require("./uncia-memory.cjs");
const { echo, number, read } = require("./uncia-parameters.cjs");

// Between two looks at the clock, which take about a microsecond each.
const STEPS_PER_READ = 20_000;
// The CPU clock itself may jump: on a virtual machine, time stolen by the host can be charged to us.
const EXCESS_NS = 10e6;
const EXCESS_SHARE = 0.1;
const MB = 2 ** 20;

const DECLARED = {
  cpu: number(100, 0, 600_000, { unit: "ms", whole: false }),
  duration: number(0, 0, 900_000, { unit: "ms", whole: false }),
  memory: number(0, 0, 10_240, { unit: "MB", whole: false }),
};

// CPU time in ns, in whole us: of this thread from Node.js 23.9 on, before of the process, whose other
// threads compile meanwhile, for a millisecond or two.
function cpuNs() {
  const { user, system } = (process.threadCpuUsage ?? process.cpuUsage).call(process);
  return (user + system) * 1000;
}

// Spins until `target` ns of CPU time are used since `start`.
function burn(start, target) {
  let used = cpuNs() - start;
  let x = 1;
  while (used < target) {
    for (let step = 0; step < STEPS_PER_READ; step++) x = (x * 31 + step) | 0;
    used = cpuNs() - start;
  }
  return [used, x];
}

exports.handler = enveloped(async (event) => {
  const values = read(event, DECLARED);
  const target = Math.round(values.cpu * 1e6);
  const begin = process.hrtime.bigint();
  const start = cpuNs();
  hold(Math.round(values.memory * MB));
  const filled = cpuNs() - start;
  const [used] = burn(start, target);
  const wall = Number(process.hrtime.bigint() - begin);
  const rest = values.duration - wall / 1e6;
  if (rest > 0) await waited(rest);
  // What taking the memory takes is part of the CPU time, and may be more than was asked for.
  const most = Math.max(target, filled);
  const valid = target <= used && used <= most + Math.max(EXCESS_NS, most * EXCESS_SHARE);
  return [{ cpu_ns: used, wall_ns: wall, parameters: echo(values, DECLARED) }, valid];
});

// Resolves after so many ms at least; timers may be early by a fraction of one.
async function waited(ms) {
  const end = performance.now() + ms;
  for (let left = ms; left > 0; left = end - performance.now()) {
    await new Promise((resume) => setTimeout(resume, Math.ceil(left)));
  }
}
