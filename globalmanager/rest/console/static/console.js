"use strict";
// Whether the page is live, ages of moments, the curve of a job's metrics, and what forms offer.
(() => {
  const units = [[86400, "d"], [3600, "h"], [60, "m"]];
  const age = (seconds) => {
    for (const [size, unit] of units) if (seconds >= 2 * size) return Math.floor(seconds / size) + unit;
    return Math.floor(seconds) + "s";
  };
  let skew = 0; // ms by which the clock of this browser is late; 0 when it is nearly right
  const tellAges = () => {
    for (const each of document.querySelectorAll("time[data-age]")) {
      const at = Date.parse(each.dateTime);
      if (Number.isNaN(at)) continue;
      const text = age(Math.max(0, (Date.now() + skew - at) / 1000));
      if (each.textContent !== text) each.textContent = text;
      each.title = each.dateTime;
    }
  };

  const MAX_POINTS = 3600;
  const LARGEST = 1e300; // beyond it the distance of two values is infinite, and nothing is drawn
  let plot = null, names = "", data = [], past = { times: [], series: {} };
  const values = () => {
    try { return JSON.parse(document.getElementById("metrics").dataset.metrics); } catch { return {}; }
  };
  const number = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    const isLong = size >= 1e9 || (size > 0 && size < 1e-4);
    return isLong ? Number(value.toPrecision(3)).toExponential() : value.toLocaleString(undefined, { maximumSignificantDigits: 6 });
  };
  const begin = (keys, section) => {
    names = keys.join();
    const before = (key) => Object.hasOwn(past.series, key) ? past.series[key].slice() : past.times.map(() => null);
    data = [past.times.slice(), ...keys.map(before)];
    if (plot) plot.destroy();
    section.hidden = false;
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
    const colours = ["--link", "--good", "--bad", "--waiting", "--done", "--text"];
    const place = document.getElementById("plot");
    plot = new uPlot({
      width: place.clientWidth, height: 220, axes: [axis, { ...axis, values: (_plot, values) => values.map(number) }],
      series: [{}, ...keys.map((key, n) => ({ label: key, value: (_plot, value) => number(value), stroke: style.getPropertyValue(colours[n]), width: 2 }))],
    }, data, place);
  };
  const show = () => {
    plot.setData(data);
    queueMicrotask(() => { // after uPlot has drawn
      if (plot.cursor.idx == null) plot.setLegend({ idx: data[0].length - 1 }); // the newest values
    });
  };
  let drawnUid = "";
  const draw = () => {
    const section = document.getElementById("curve");
    const job = document.getElementById("job");
    if (!section || !job || !window.uPlot) return;
    if (drawnUid && drawnUid !== job.dataset.uid) { past = { times: [], series: {} }; names = ""; } // another job of this name
    drawnUid = job.dataset.uid;
    const told = values();
    const keys = [...new Set([...Object.keys(told), ...Object.keys(past.series)])].sort().slice(0, 6);
    if (!keys.length) return;
    if (keys.join() !== names) begin(keys, section);
    const now = Date.now() / 1000;
    if (now < data[0].at(-1) - 60) { past = { times: [], series: {} }; begin(keys, section); } // the clock was set back
    if (!Object.keys(told).length || now <= data[0].at(-1)) { show(); return; }
    data[0].push(now);
    keys.forEach((key, n) => data[n + 1].push(!isStale && Math.abs(told[key]) < LARGEST ? told[key] : null)); // while stale, nobody knows them
    if (data[0].length > MAX_POINTS) for (const each of data) each.shift();
    document.getElementById("plot").dataset.points = data[0].length;
    show();
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

  // ---- whether the page is live ----

  const STALE_MS = 5000; // a stream ends after minutes, and the next one begins sooner than this
  const SILENT_MS = 45000; // three beats: the connection is dead, as after a sleep of the laptop
  let source = null, heardAt = 0, lostAt = 0, since = "", isStale = false;
  const tell = (id, text) => {
    const place = document.getElementById(id);
    if (place && place.textContent !== text) place.textContent = text;
  };
  const hear = (event) => {
    heardAt = performance.now();
    if (event.type !== "beat") return;
    const late = Number(event.data) * 1000 - Date.now();
    skew = Math.abs(late) > 5000 ? late : 0;
  };
  const watch = () => {
    if (source && !lostAt && performance.now() - heardAt > SILENT_MS) {
      source.close();
      source.onerror(new Event("error")); // htmx connects again
    }
    isStale = lostAt > 0 && performance.now() - lostAt > STALE_MS;
    tell("stale", isStale ? `Not live since ${since}: this page shows what was known then, and waits for the GlobalManager.` : "");
  };
  document.addEventListener("htmx:sseOpen", (event) => {
    if (source !== event.detail.source) {
      source = event.detail.source;
      for (const name of ["beat", "page"]) source.addEventListener(name, hear);
    }
    heardAt = performance.now();
    lostAt = 0;
    tell("line", "live");
    tell("unsent", "");
    watch();
  });
  document.addEventListener("htmx:sseError", () => {
    if (!lostAt) [lostAt, since] = [performance.now(), new Date().toLocaleTimeString()];
    tell("line", "not live: waiting for the GlobalManager");
  });
  document.addEventListener("htmx:sseClose", () => {
    source = null;
    lostAt = 0;
    tell("line", "not live");
  });

  // ---- forms ----

  // While the GlobalManager does not answer, the browser would put its own error page in place of a form.
  addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.method !== "post" || !lostAt) return;
    event.preventDefault();
    try {
      await fetch("/login", { method: "HEAD" });
    } catch {
      tell("unsent", "The GlobalManager does not answer, so nothing was sent. What you typed is still here: try again when this page is live.");
      return;
    }
    form.submit();
  });
  // Forms stay as they were loaded, so that nothing typed is lost. What they offer follows the job.
  const offer = () => {
    const after = document.getElementById("after"), job = document.getElementById("job");
    if (!after) return;
    const isOther = Boolean(job) && job.dataset.uid !== after.dataset.uid;
    after.hidden = !job || isOther;
    tell("other", isOther ? "This is another job of the same name: load this page again for its events and actions." : "");
    if (!job) return;
    for (const form of after.querySelectorAll("form[data-when]")) form.hidden = form.dataset.when !== job.dataset.suspended;
    const replicas = after.querySelector("[name=replicas]");
    if (replicas && replicas.value === replicas.defaultValue) replicas.value = replicas.defaultValue = job.dataset.replicas;
  };

  if (window.Idiomorph) { // an update does not close what the reader has opened
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => name !== "open" || node.localName !== "details";
  }
  document.addEventListener("htmx:afterSwap", () => { tellAges(); draw(); offer(); });
  addEventListener("DOMContentLoaded", () => {
    tellAges(); draw(); remember(); offer();
    setInterval(() => { tellAges(); watch(); }, 1000);
  });
  setInterval(draw, 10000);
})();
