"use strict";
// Ages of moments, and the curve of a job's metrics.
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
  let plot = null, names = "", data = [], past = { times: [], series: {} };
  const values = () => {
    try { return JSON.parse(document.getElementById("metrics").dataset.metrics); } catch { return {}; }
  };
  const begin = (keys, section) => {
    names = keys.join();
    const before = (key) => Object.hasOwn(past.series, key) ? past.series[key].slice() : past.times.map(() => null);
    data = [past.times.slice(), ...keys.map(before)];
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
  };
  const draw = () => {
    const section = document.getElementById("curve");
    if (!section || !window.uPlot) return;
    const told = values();
    const keys = [...new Set([...Object.keys(told), ...Object.keys(past.series)])].sort().slice(0, 6);
    if (!keys.length) return;
    if (keys.join() !== names) begin(keys, section);
    const now = Date.now() / 1000;
    if (now < data[0].at(-1) - 60) { past = { times: [], series: {} }; begin(keys, section); } // the clock was set back
    if (!Object.keys(told).length || now <= data[0].at(-1)) { plot.setData(data); return; }
    data[0].push(now);
    keys.forEach((key, n) => data[n + 1].push(told[key] ?? null));
    if (data[0].length > MAX_POINTS) for (const each of data) each.shift();
    document.getElementById("plot").dataset.points = data[0].length;
    plot.setData(data);
  };
  const remember = async () => {
    const address = document.getElementById("curve")?.dataset.past;
    if (!address) return;
    let note = "The GlobalManager does not tell what was before this page was opened.";
    try {
      const answer = await fetch(address);
      if (answer.ok && !answer.redirected) {
        const told = await answer.json();
        const shift = Date.now() / 1000 - told.now;
        past = { times: told.times.map((each) => each + shift), series: told.series };
        note = told.note;
      }
    } catch { /* the note says so */ }
    document.getElementById("past").textContent = note;
    names = "";
    draw();
  };
  addEventListener("resize", () => {
    if (plot) plot.setSize({ width: document.getElementById("plot").clientWidth, height: 220 });
  });

  // A log out, or a session that is over, ends the other pages of this browser, too, and no page comes
  // back from the browser's memory.
  const tabs = new BroadcastChannel("edgeai");
  tabs.onmessage = () => { if (!("login" in document.body.dataset)) location.reload(); };
  addEventListener("DOMContentLoaded", () => { if ("login" in document.body.dataset) tabs.postMessage("ended"); });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  const tell = (text) => {
    const line = document.getElementById("line");
    if (line) line.textContent = text;
  };
  document.addEventListener("htmx:sseOpen", () => tell("live"));
  document.addEventListener("htmx:sseError", () => tell("not live: waiting for the GlobalManager"));
  document.addEventListener("htmx:sseClose", () => tell("not live"));
  document.addEventListener("htmx:afterSwap", () => { tellAges(); draw(); });
  addEventListener("DOMContentLoaded", () => { tellAges(); draw(); remember(); setInterval(tellAges, 1000); });
  setInterval(draw, 10000);
})();
