// Between workerd and a handler; laid beside it as uncia_main.mjs.
import * as loaded from "{module}";

const handler = loaded["{attribute}"] ?? loaded.default?.["{attribute}"];
// It has no clock of CPU time, and its other clocks stand still while code runs.
process.cpuUsage = () => ({ user: 0, system: 0 });
const STANDS_STILL = ["cpu_ns", "handler_start_ns", "handler_end_ns"];
let name;

function answered(status, value, headers) {
  name ??= crypto.randomUUID();
  const all = { "content-type": "application/json", "x-uncia-start": "warm", "x-uncia-instance": name };
  return new Response(JSON.stringify(value ?? null), { status, headers: { ...all, ...headers } });
}

export default {
  async fetch(request) {
    if (new URL(request.url).pathname === "{ready}") return new Response(null, { status: 204 });
    let event;
    try {
      event = JSON.parse((await request.text()) || "{}");
    } catch {
      return answered(400, { errorType: "NoJson", errorMessage: "the body is no JSON" });
    }
    const context = { functionName: "{function}", awsRequestId: crypto.randomUUID(), functionVersion: "$LATEST" };
    try {
      const result = await handler(event, context);
      for (const key of STANDS_STILL) delete result?.uncia?.[key];
      return answered(200, result);
    } catch (error) {
      const said = { errorType: error?.name || "Error", errorMessage: String(error?.message || error) };
      return answered(502, said, {
        "x-uncia-outcome": "function_error", "x-uncia-error": btoa(JSON.stringify(said).slice(0, 500)),
      });
    }
  },
};
