// Keeps a runtime that was started ahead until it is told which instance it becomes.
//
// Whatever is the same for all functions is done before: modules are loaded, and both of Node's loaders
// have loaded something once.
'use strict';

const fs = require('fs');

async function warm() {
  for (const name of ['crypto', 'http', 'https', 'url']) require(name);
  await import('data:text/javascript,');
}

// Reads what its instance is, and makes the process what it would be had it been started for it.
function become(descriptor) {
  fs.writeSync(descriptor, '\n');
  const text = fs.readFileSync(descriptor, 'utf8');
  // The worker is gone, or has no use for it.
  if (!text) process.exit(0);
  const began = process.hrtime.bigint();
  fs.closeSync(descriptor);
  const environment = process.env;
  for (const name of Object.keys(environment)) delete environment[name];
  for (const [name, value] of JSON.parse(text)) environment[name] = value;
  // Where modules of layers are; Node looks for it when it starts.
  if (environment.NODE_PATH) require('module')._initPaths();
  // What it was in lies below the function's code now.
  process.chdir(environment.LAMBDA_TASK_ROOT);
  return began;
}

// `then` is called with when the instance was told, by the monotonic clock.
module.exports = async (descriptor, then) => {
  await warm();
  setImmediate(() => {
    const began = become(descriptor);
    // In the event loop's next round, which looks at the clock: timers would be due at once.
    setImmediate(then, began);
  });
};
