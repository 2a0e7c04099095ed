"use strict";

// What runs on the platform, live. All that is shown is written as text, never as markup: names and
// errors are data of functions and of their callers. Money is never computed here: bills come as text.

const STATES = ["starting", "busy", "idle", "frozen", "scaled_down", "stopping"];
const WINDOW_S = 300;
const MAX_ROWS = 50;
const RETRY_MS = 5000;
const ABSENT = "–";

let now = null;
let bills = null;
let stream = null;
const points = new Map();
const rows = new Map();

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; texts among them stay texts. */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.map((child) => (child === null || child === undefined ? ABSENT : child)));
  return made;
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Forms of numbers; what is not known is a dash, never 0.

const count = (value) => (value === null || value === undefined ? ABSENT : value.toLocaleString("en"));

function figure(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 6) });
}

function duration(ns) {
  if (ns === null || ns === undefined) return ABSENT;
  if (ns < 1e3) return `${figure(ns)} ns`;
  if (ns < 1e6) return `${figure(ns / 1e3)} µs`;
  if (ns < 1e9) return `${figure(ns / 1e6)} ms`;
  return `${figure(ns / 1e9)} s`;
}

function size(bytes) {
  return bytes === null || bytes === undefined ? ABSENT : `${figure(bytes / 1048576)} MB`;
}

function clock(ms) {
  return ms === null ? ABSENT : new Date(ms).toLocaleTimeString("en-GB");
}

// The stream of events.

function connect() {
  stream = new EventSource("v1/live");
  stream.addEventListener("state", (event) => {
    // Of a platform that was started anew, the numbers begin anew.
    points.clear();
    rows.clear();
    byId("rows").tBodies[0].replaceChildren();
    take(JSON.parse(event.data));
  });
  stream.addEventListener("tick", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("bills", (event) => {
    bills = JSON.parse(event.data);
    drawMeter();
    drawFunctions();
  });
  stream.onerror = () => {
    const closed = stream.readyState === EventSource.CLOSED;
    setStatus("lost", closed ? "Not connected; trying again" : "Connection lost; trying again");
    if (closed) {
      disconnect();
      setTimeout(() => document.hidden || stream || connect(), RETRY_MS);
    }
  };
}

function disconnect() {
  if (stream) stream.close();
  stream = null;
}

/** Nobody watches a page that is hidden. */
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    setStatus("", "Paused while hidden");
  } else if (!stream) {
    connect();
  }
});

function take(state) {
  now = { ...state, warnings: state.warnings || (now && now.warnings) || [] };
  for (const point of state.points) points.set(point.second, point);
  for (const row of state.rows) rows.set(row.number, row);
  const oldest = Math.floor(now.now_ms / 1000) - WINDOW_S;
  for (const second of points.keys()) if (second < oldest) points.delete(second);
  for (const number of [...rows.keys()].sort((a, b) => a - b).slice(0, -MAX_ROWS)) rows.delete(number);
  setStatus("live", "Live");
  byId("since").textContent = `since ${new Date(now.started_ms).toLocaleString("en-GB")}`;
  byId("version").textContent = `Uncia ${now.version}`;
  drawWarnings();
  drawTiles();
  drawCharts();
  drawFunctions();
  drawRows();
  drawMeterNote();
}

function setStatus(kind, text) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
  status.className = kind;
}

// Parts of the page.

function drawWarnings() {
  const list = byId("warnings");
  list.replaceChildren(...now.warnings.map((warning) => element("li", {}, warning)));
  list.hidden = now.warnings.length === 0;
}

/** Sums of the last whole seconds. */
function lastSeconds(seconds) {
  const end = Math.floor(now.now_ms / 1000);
  const recent = [...points.values()].filter((it) => it.second >= end - seconds && it.second < end);
  const sum = (key) => {
    const known = recent.map((it) => it[key]).filter((it) => it !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  };
  const highest = (key) => {
    const known = recent.map((it) => it[key]).filter((it) => it !== null);
    return known.length ? Math.max(...known) : null;
  };
  return { sum, highest };
}

function drawTiles() {
  const { sum, highest } = lastSeconds(10);
  const instances = STATES.reduce((total, state) => total + now.instances[state], 0);
  const states = STATES.filter((state) => now.instances[state] > 0)
    .map((state) => `${now.instances[state]} ${state.replace("_", " ")}`)
    .join(", ");
  const cpu = sum("cpu_ns");
  const invocations = sum("invocations") || 0;
  const tiles = [
    ["Invocations a second", figure(invocations / 10), "mean of 10 s"],
    ["Failed, of the last 10 s", count(sum("failures") || 0), invocations ? `of ${count(invocations)}` : ""],
    ["99 % end within", duration(highest("p99_ns")), "most of 10 s"],
    ["CPUs used", cpu === null ? ABSENT : figure(cpu / 1e10), "mean of 10 s"],
    ["Instances", count(instances), states],
    ["Requests that wait", count(now.waiting), now.events ? `${count(now.events)} events` : ""],
  ];
  byId("tiles").replaceChildren(
    ...tiles.map(([name, value, note]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value, " ", element("small", {}, note))),
    ),
  );
}

// Charts: lines over the last minutes, a point a second; seconds in which nothing ended are 0 or gaps.

function drawCharts() {
  const per = (key, unit) => (point) => (point[key] === null ? null : point[key] / unit);
  drawChart("rate", [
    { kind: "a", name: "all", value: per("invocations", 1), empty: 0 },
    { kind: "b", name: "starts", value: per("starts", 1), empty: 0 },
    { kind: "c", name: "failed", value: per("failures", 1), empty: 0 },
  ], figure);
  drawChart("latency", [
    { kind: "a", name: "median", value: per("p50_ns", 1), empty: null },
    { kind: "b", name: "99 %", value: per("p99_ns", 1), empty: null },
  ], duration);
  drawChart("cpu", [
    { kind: "a", name: "used", value: per("cpu_ns", 1e9), empty: 0 },
    { kind: "c", name: "throttled", value: per("throttled_ns", 1e9), empty: 0 },
  ], figure);
}

function drawChart(name, series, format) {
  const holder = document.querySelector(`[data-chart="${name}"]`);
  const width = Math.max(holder.clientWidth, 200);
  const height = holder.clientHeight || 170;
  const box = { left: 52, right: 8, top: 22, bottom: 20 };
  const end = Math.floor(now.now_ms / 1000) - 1;
  const start = end - WINDOW_S + 1;
  const first = Math.max(start, Math.floor(now.started_ms / 1000));
  const lines = series.map((line) => {
    const values = [];
    for (let second = first; second <= end; second += 1) {
      const point = points.get(second);
      values.push([second, point ? line.value(point) : line.empty]);
    }
    return { ...line, values };
  });
  const known = lines.flatMap((line) => line.values.map(([, value]) => value)).filter((it) => it !== null);
  const top = niceTop(known.length ? Math.max(...known) : 0);
  const x = (second) => box.left + ((second - start) / (WINDOW_S - 1)) * (width - box.left - box.right);
  const y = (value) => height - box.bottom - (value / top) * (height - box.top - box.bottom);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    drawn.append(svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: at, y2: at }));
    drawn.append(svg("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, format(top * part)));
  }
  for (const [ago, anchor] of [[300, "start"], [150, "middle"], [0, "end"]]) {
    const label = ago === 0 ? "now" : `−${ago / 60} min`;
    drawn.append(svg("text", { x: x(end - Math.max(0, ago - 1)), y: height - 5, "text-anchor": anchor }, label));
  }
  lines.forEach((line, index) => {
    let path = "";
    let isOpen = false;
    line.values.forEach(([second, value], place) => {
      if (value === null) {
        isOpen = false;
        return;
      }
      const next = line.values[place + 1];
      const alone = !isOpen && (!next || next[1] === null);
      if (alone) {
        drawn.append(svg("circle", { class: line.kind, cx: x(second).toFixed(1), cy: y(value).toFixed(1), r: 1.8 }));
      }
      path += `${isOpen ? "L" : "M"}${x(second).toFixed(1)} ${y(value).toFixed(1)}`;
      isOpen = true;
    });
    drawn.append(svg("path", { class: line.kind, d: path || "M0 0" }));
    drawn.append(svg("text", { class: `name ${line.kind}`, x: box.left + index * 70, y: 12 }, line.name));
  });
  const last = lines.map((line) => {
    const value = [...line.values].reverse().find(([, it]) => it !== null);
    return `${line.name} ${value ? format(value[1]) : ABSENT}`;
  });
  drawn.prepend(svg("title", {}, last.join(", ")));
  holder.replaceChildren(drawn);
}

/** The top of an axis: 1, 2 or 5 times a power of ten. */
function niceTop(highest) {
  if (highest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= highest);
}

window.addEventListener("resize", () => now && drawCharts());

// The meter: bills come ready from the process that computes them.

function drawMeterNote() {
  byId("meter-note").textContent = meterNote();
}

function meterNote() {
  if (bills && bills.error) return `There are no bills: ${bills.error}`;
  if (!bills && now && !now.has_biller) {
    return "Bills are computed by uncia serve; this platform runs without it (uncia-engine serve alone).";
  }
  if (!bills) return "The first bills are being computed …";
  const parts = [
    `What the ${count(bills.rows)} invocations since this platform started would have cost under each tariff,`,
    "without free tiers and without earlier rows of its log.",
  ];
  if (!bills.is_complete) parts.push("Earlier invocations are still being added.");
  if (bills.missing) parts.push(`${count(bills.missing)} rows were removed from the log before they were billed.`);
  if (bills.functions_left_out) parts.push(`${count(bills.functions_left_out)} more functions are in the sum alone.`);
  return parts.join(" ");
}

const functionName = (name) => (name === null ? "(other functions)" : name);

function drawMeter() {
  drawMeterNote();
  const body = byId("meter").tBodies[0];
  if (bills.error) {
    body.replaceChildren();
    return;
  }
  const chooser = byId("meter-function");
  const chosen = chooser.value;
  const names = bills.functions.map((it) => functionName(it.name)).sort();
  if ([...chooser.options].slice(1).map((it) => it.value).join("\n") !== names.join("\n")) {
    const options = names.map((name) => element("option", { value: name }, name));
    chooser.replaceChildren(element("option", { value: "" }, "all"), ...options);
    chooser.value = names.includes(chosen) ? chosen : "";
  }
  const of = bills.functions.find((it) => functionName(it.name) === chooser.value);
  const lines = of ? of.lines : bills.total;
  const entries = bills.tariffs.map((tariff, index) => ({ tariff, line: lines[index] }));
  const order = (entry) => (entry.line && entry.line.exact !== null ? Number(entry.line.exact) : Infinity);
  entries.sort((a, b) => order(a) - order(b) || a.tariff.id.localeCompare(b.tariff.id));
  body.replaceChildren(...entries.map(meterRow));
  const notes = entries.filter((it) => it.line && it.line.notes);
  byId("meter-details").replaceChildren(
    ...notes.map(({ tariff, line }) => element("li", {}, `${tariff.id}: ${line.notes.join("; ")}`)),
  );
}

function meterRow({ tariff, line }) {
  const name = element("th", { scope: "row", title: tariff.summary }, element("span", {}, tariff.id),
    element("small", {}, tariff.is_sold ? tariff.provider : `${tariff.provider} (a model, not sold)`));
  const row = element("tr", { class: tariff.is_chosen ? "chosen" : null, "data-tariff": tariff.id }, name);
  if (!line) {
    row.append(element("td", { class: "number", colspan: 8 }, ABSENT));
    return row;
  }
  const [fee, cpu, memory] = ["fee", "cpu", "memory"].map((it) => line.parts.find((part) => part.name === it));
  const cell = (text, title) => element("td", { class: "number", title }, text);
  row.append(
    cell(line.cost, line.exact === null ? null : `$${line.exact}`),
    element("td", { class: "bar" }, partsBar(line.parts.map((part) => [part.name, part.share, part.amount]))),
    cell(fee ? fee.amount : null),
    cell(cpu ? cpu.amount : null),
    cell(memory ? memory.amount : null),
    cell(line.rounding),
    cell(line.million),
    cell(line.rows),
  );
  return row;
}

/** A bar of parts, each a share of its whole width. */
function partsBar(parts) {
  const bar = element("div", { class: "parts" });
  for (const [kind, share, title] of parts) {
    const part = element("span", { class: kind, title: `${kind}: ${title}` });
    part.style.flexBasis = `${(100 * share).toFixed(2)}%`;
    bar.append(part);
  }
  return bar;
}

byId("meter-function").addEventListener("change", () => bills && drawMeter());

function drawFunctions() {
  if (!now) return;
  const costs = new Map();
  if (bills && !bills.error) {
    const index = bills.tariffs.findIndex((tariff) => tariff.is_chosen);
    for (const it of bills.functions) costs.set(it.name, [it.lines[index].cost, bills.tariffs[index].id]);
  }
  byId("functions").tBodies[0].replaceChildren(...now.functions.map((it) => {
    const chips = STATES.filter((state) => it.instances[state] > 0)
      .map((state) => element("span", { class: `chip ${state}` }, `${it.instances[state]} ${state.replace("_", " ")}`));
    const [cost, tariff] = costs.get(it.name) || [ABSENT, null];
    const kind = `${it.runtime}, ${count(it.memory_mb)} MB${it.is_broken ? ", damaged" : ""}`;
    const cell = (text, title) => element("td", { class: "number", title }, text);
    return element("tr", {},
      element("th", { scope: "row", title: it.name }, it.name, element("small", {}, kind)),
      element("td", {}, element("div", { class: "chips" }, ...(chips.length ? chips : ["none"]))),
      cell(count(it.waiting)), cell(count(it.invocations)), cell(count(it.failures)), cell(count(it.starts)),
      cell(duration(it.execution_ns)), cell(duration(it.cpu_ns)), cell(duration(it.throttled_ns)),
      cell(size(it.memory_peak)), cell(cost, tariff));
  }));
  const notes = ["Sums since this platform started."];
  if (now.functions.length === 0) notes.unshift("There are no functions yet.");
  if (now.functions_left_out) notes.push(`${count(now.functions_left_out)} more functions are not shown.`);
  byId("functions-note").textContent = notes.join(" ");
}

function drawRows() {
  const newest = [...rows.values()].sort((a, b) => b.number - a.number);
  const table = byId("rows").tBodies[0];
  const known = new Map([...table.rows].map((it) => [Number(it.dataset.number), it]));
  table.replaceChildren(...newest.map((row) => known.get(row.number) || invocationRow(row)));
}

function invocationRow(row) {
  const phases = [["queued", row.queued], ["initialization", row.initialization], ["execution", row.execution]];
  const whole = phases.reduce((sum, [, ns]) => sum + (ns || 0), 0);
  const shares = phases.filter(([, ns]) => ns).map(([name, ns]) => [name, ns / whole, duration(ns)]);
  const spans = row.phases.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
  const outcome = row.error ? `${row.outcome}: ${row.error}` : row.outcome;
  const cell = (text, title) => element("td", { class: "number", title }, text);
  return element("tr", { "data-number": row.number, class: row.outcome === "ok" ? null : "failed" },
    element("th", { scope: "row", title: `${row.function}, request ${row.request_id || "unknown"}` }, row.function),
    element("td", {}, clock(row.ended_ms)),
    element("td", { title: row.instance }, row.start),
    element("td", { class: "bar" }, partsBar(shares)),
    cell(duration(row.queued)), cell(duration(row.initialization), spans || null), cell(duration(row.execution)),
    cell(duration(row.cpu), row.throttled === null ? null : `throttled for ${duration(row.throttled)}`),
    cell(size(row.memory_peak), `of ${size(row.allocated_memory)}`),
    element("td", { class: "outcome" }, element("div", { title: outcome }, outcome)));
}

if (!document.hidden) connect();
