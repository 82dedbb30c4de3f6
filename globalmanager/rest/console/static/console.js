"use strict";
// Ages of moments, the curve of a job's metrics, and no stream while nobody looks at the page.
(() => {
  const units = [[86400, "d"], [3600, "h"], [60, "m"]];
  const age = (seconds) => {
    for (const [size, unit] of units) if (seconds >= 2 * size) return Math.floor(seconds / size) + unit;
    return Math.floor(seconds) + "s";
  };
  const tellAges = () => {
    for (const each of document.querySelectorAll("time[data-age]")) {
      const at = Date.parse(each.dateTime);
      if (Number.isNaN(at)) continue;
      const text = age(Math.max(0, (Date.now() - at) / 1000));
      if (each.textContent !== text) each.textContent = text;
      each.title = each.dateTime;
    }
  };

  const MAX_POINTS = 3600;
  let plot = null, names = "", data = [];
  const draw = () => {
    const source = document.getElementById("metrics");
    const section = document.getElementById("curve");
    if (!source || !section || !window.uPlot) return;
    let values;
    try { values = JSON.parse(source.dataset.metrics); } catch { return; }
    const keys = Object.keys(values).sort().slice(0, 6);
    if (!keys.length) return;
    if (keys.join() !== names) {
      names = keys.join();
      data = [[], ...keys.map(() => [])];
      if (plot) plot.destroy();
      section.hidden = false;
      const style = getComputedStyle(document.documentElement);
      const axis = { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line") } };
      const colours = ["--link", "--good", "--bad", "--waiting", "--done", "--text"];
      const place = document.getElementById("plot");
      plot = new uPlot({
        width: place.clientWidth, height: 220, axes: [axis, axis],
        series: [{}, ...keys.map((key, n) => ({ label: key, stroke: style.getPropertyValue(colours[n]), width: 2 }))],
      }, data, place);
    }
    data[0].push(Date.now() / 1000);
    keys.forEach((key, n) => data[n + 1].push(values[key]));
    if (data[0].length > MAX_POINTS) for (const each of data) each.shift();
    plot.setData(data);
  };
  addEventListener("resize", () => {
    if (plot) plot.setSize({ width: document.getElementById("plot").clientWidth, height: 220 });
  });

  const tell = (text) => {
    const line = document.getElementById("line");
    if (line) line.textContent = text;
  };
  document.addEventListener("htmx:sseOpen", () => tell("live"));
  document.addEventListener("htmx:sseError", () => tell("not live: waiting for the GlobalManager"));
  document.addEventListener("htmx:sseClose", () => tell("not live"));
  document.addEventListener("htmx:afterSwap", () => { tellAges(); draw(); });
  addEventListener("DOMContentLoaded", () => { tellAges(); draw(); setInterval(tellAges, 1000); });
  setInterval(draw, 10000);
})();
