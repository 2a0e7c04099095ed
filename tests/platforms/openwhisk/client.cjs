// What Apache's client for Node.js makes of the server: node client.cjs HOST KEY ZIP
"use strict";

const assert = require("assert");
const fs = require("fs");
const openwhisk = require("openwhisk");

const [apihost, api_key, zip] = process.argv.slice(2);
const whisk = openwhisk({ apihost, api_key });

async function main() {
  const action = "function main(args) { return { sum: args.a + args.b }; }";
  const made = await whisk.actions.create({ name: "sum", action, params: { b: 2 } });
  assert.equal(made.exec.kind, "nodejs:default");
  const waited = { blocking: true, result: true };
  const result = await whisk.actions.invoke({ name: "sum", params: { a: 1 }, ...waited });
  assert.deepEqual(result, { sum: 3 });
  const whole = await whisk.actions.invoke({ name: "sum", params: { a: 2 }, blocking: true });
  assert.equal(whole.response.success, true);
  assert.equal((await whisk.activations.get(whole.activationId)).response.result.sum, 4);
  const { activationId } = await whisk.actions.invoke({ name: "sum", params: { a: 5 } });
  for (;;) {
    // It is there once it has ended.
    const record = await whisk.activations.get(activationId).catch((error) => {
      assert.equal(error.statusCode, 404);
    });
    if (record) { assert.equal(record.response.result.sum, 7); break; }
  }
  const listed = await whisk.activations.list({ limit: 2 });
  assert.equal(listed.length, 2);
  await whisk.actions.create({
    name: "zipped", action: fs.readFileSync(zip), kind: "python:3", limits: { memory: 128 },
  });
  assert.deepEqual((await whisk.actions.list()).map((it) => it.name).sort(), ["sum", "zipped"]);
  const zipped = await whisk.actions.invoke({ name: "zipped", ...waited });
  assert.deepEqual(zipped, { zipped: true });
  await assert.rejects(whisk.actions.create({ name: "sum", action }), { statusCode: 409 });
  await whisk.actions.update({ name: "sum", action: "function main() { throw new TypeError('no') }" });
  await assert.rejects(
    whisk.actions.invoke({ name: "sum", blocking: true }),
    (error) => error.statusCode === 502 && error.error.response.status === "application error");
  await whisk.actions.delete({ name: "sum" });
  await assert.rejects(whisk.actions.get({ name: "sum" }), { statusCode: 404 });
  const stranger = openwhisk({ apihost, api_key: "a:b" });
  await assert.rejects(stranger.actions.list(), { statusCode: 401 });
}

main().catch((error) => { console.error(error); process.exit(1); });
