"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("specs");
  const configs = read("configs");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();

  // Vega does not wrap a legend: count the columns that fit beside the axis labels.
  const LETTER = 6.6, SYMBOL = 38;
  function settings(place, spec, ground) {
    const { legend, labels } = spec.usermeta;
    const room = place.clientWidth - Math.min(labels * LETTER, 165) - 28;
    const columns = Math.max(1, Math.min(7, Math.floor(room / (legend * LETTER + SYMBOL))));
    const config = configs[ground];
    return { ...config, legend: { ...config.legend, columns } };
  }

  async function draw(place) {
    const name = place.dataset.chart;
    const ground = dark.matches ? "dark" : "light";
    views.get(name)?.finalize();
    const result = await vegaEmbed(place, specs[name], {
      mode: "vega-lite",
      renderer: "svg",
      config: settings(place, specs[name], ground),
      downloadFileName: name,
      scaleFactor: 2,
      actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
      tooltip: { theme: ground },
    });
    views.set(name, result);
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
