"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "{}");
  const specs = read("specs");
  const configs = read("configs");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();

  // Vega does not wrap a legend: count the columns that fit beside the axis labels.
  const LETTER = 6.6, SYMBOL = 38;
  function settings(width, spec, ground) {
    const { legend, labels } = spec.usermeta;
    const room = width - Math.min(labels * LETTER, 165) - 28;
    const columns = Math.max(1, Math.min(7, Math.floor(room / (legend * LETTER + SYMBOL))));
    const config = configs[ground];
    const labelLimit = Math.max(config.legend.labelLimit, width - SYMBOL);
    return { ...config, legend: { ...config.legend, columns, labelLimit } };
  }

  // A chart in a place, with what the reader chose in the same chart as it is shown.
  async function embed(place, width, name, spec, ground, more) {
    const config = { ...settings(width, spec, ground), ...more };
    const tooltip = { theme: ground };
    const options = { mode: "vega-lite", renderer: "svg", config, actions: false, tooltip };
    const shown = views.get(name)?.view;
    const chosen = (shown ? (spec.params ?? []) : [])
      .filter(({ bind }) => bind?.input)
      .map((param) => [param.name, shown.signal(param.name)]);
    const result = await vegaEmbed(place, spec, options);
    chosen.forEach(([param, value]) => result.view.signal(param, value));
    await result.view.runAsync();
    return result;
  }

  async function draw(place) {
    const name = place.dataset.chart;
    const ground = dark.matches ? "dark" : "light";
    const before = views.get(name);
    views.set(name, await embed(place, place.clientWidth, name, specs[name], ground));
    before?.finalize();
    place.dataset.drawn = ground;
  }

  function fail(place, error) {
    place.textContent = `This chart could not be drawn (${error.message}); its numbers are below.`;
    place.classList.add("failed");
  }

  const places = [...document.querySelectorAll("[data-chart]")];
  const drawAll = () => places.forEach((place) => draw(place).catch((error) => fail(place, error)));
  drawAll();
  dark.addEventListener("change", drawAll);

  // A saved chart is for paper: drawn anew on white, as wide as on the page.
  async function save(figure, form) {
    const place = figure.querySelector("[data-chart]");
    const name = place.dataset.chart;
    const title = figure.querySelector("figcaption")?.textContent;
    const spec = { ...specs[name], padding: 12, ...(title && { title }) };
    const width = place.clientWidth;
    const sheet = document.createElement("div");
    sheet.style.cssText = `position: absolute; visibility: hidden; width: ${width}px`;
    document.body.append(sheet);
    const { view, finalize } = await embed(sheet, width, name, spec, "light", { background: "#fff" });
    try {
      const link = document.createElement("a");
      link.download = `${name}.${form}`;
      link.href = await view.toImageURL(form, form === "png" ? 2 : 1);
      link.click();
    } finally {
      finalize();
      sheet.remove();
    }
  }

  // A table as CSV: numbers with all their digits, notes such as intervals in columns of their own,
  // and a column for each number of a cell that shows several.
  function csv(table) {
    const rows = [...table.rows].map((row) => [...row.cells]);
    const noted = rows[0].map((_, at) => rows.some((row) => row[at].querySelector(".ci")));
    const text = (cell) => cell.dataset.value ?? cell.firstChild?.textContent.trim() ?? "";
    const note = (cell) => cell.querySelector(".ci")?.textContent ?? "";
    const quoted = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
    const line = (row, index) =>
      row.flatMap((cell, at) => {
        if (cell.dataset.parts) return JSON.parse(cell.dataset.parts);
        if (!noted[at]) return [text(cell)];
        return [text(cell), index === 0 ? `${text(cell)} (note)` : note(cell)];
      });
    return rows.map((row, index) => `${line(row, index).map(quoted).join(",")}\n`).join("");
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Not every browser gives its clipboard to a page that is a file.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) throw new Error("no clipboard");
    }
  }

  function onClick(selector, action, done) {
    document.querySelectorAll(selector).forEach((button) => {
      const label = button.textContent;
      let reset;
      const say = (text) => {
        button.textContent = text;
        clearTimeout(reset);
        reset = setTimeout(() => (button.textContent = label), 1600);
      };
      button.addEventListener("click", () =>
        action(button).then(() => say(done), (error) => say(`Failed: ${error.message}`)),
      );
      button.parentElement.hidden = false;
    });
  }
  onClick("[data-save]", (button) => save(button.closest("figure"), button.dataset.save), "Saved");
  const tableOf = (button) => button.closest(".numbers").querySelector("table");
  onClick("[data-copy]", (button) => copy(csv(tableOf(button))), "Copied");

  // A folded table would be missing on paper.
  window.addEventListener("beforeprint", () =>
    document.querySelectorAll("details").forEach((item) => (item.open = true)),
  );

  // The link of the section being read is marked.
  const links = new Map(
    [...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]),
  );
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-10% 0px -80% 0px" },
  );
  document.querySelectorAll("main > section[id]").forEach((section) => seen.observe(section));
})();
