"use strict";
// Whether the page is live, ages of moments, curves of a job's metrics, logs, and what forms offer.
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

  // ---- curves: one for each metric, with its own axis ----

  const MAX_POINTS = 3600, MAX_CURVES = 6;
  const LARGEST = 1e300; // beyond it the distance of two values is infinite, and nothing is drawn
  const number = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    const isLong = size >= 1e9 || (size > 0 && size < 1e-4);
    return isLong ? Number(value.toPrecision(3)).toExponential() : value.toLocaleString(undefined, { maximumSignificantDigits: 6 });
  };
  class Curves { // of the element `id`, which has the present values, and a limit if they have one
    constructor(id) { [this.id, this.byKey, this.place, this.of, this.past] = [id, new Map(), null, "", { times: [], series: {} }]; }
    forget() {
      for (const curve of this.byKey.values()) { if (curve.plot) curve.plot.destroy(); curve.box.remove(); }
      this.byKey = new Map();
    }
    begin(key) {
      const box = Object.assign(document.createElement("div"), { className: "curve" });
      const head = document.createElement("h3"), shown = document.createElement("b"); // the value under the pointer
      head.append(key, shown);
      box.append(head);
      box.dataset.key = key;
      this.place.append(box);
      const before = this.past.times.map((x, n) => [x, Object.hasOwn(this.past.series, key) ? this.past.series[key][n] : null]).filter((each) => each[1] != null);
      const curve = { box, shown, x: before.map((each) => each[0]), y: before.map((each) => each[1]), plot: null };
      this.byKey.set(key, curve);
      return curve;
    }
    draw() {
      const now = document.getElementById(this.id), place = document.getElementById(`${this.id}-curves`);
      if (!now || !place || !window.uPlot) return;
      const { metrics, round: text, ended, limit, of } = now.dataset, isFirst = this.of === "";
      if (!isFirst && this.of !== of) this.past = { times: [], series: {} }; // another job of this name, or another version
      if ((!isFirst && this.of !== of) || place !== this.place) { this.forget(); this.place = place; }
      this.of = of;
      if (isFirst) this.remember(place.dataset.past);
      let told = {};
      try { told = JSON.parse(metrics); } catch { /* no values */ }
      const round = Number(text) || 0, byRound = round > 0 || Boolean(this.past.is_by_round), x = round || Date.now() / 1000;
      for (const key of [...new Set([...Object.keys(told), ...Object.keys(this.past.series)])].sort().slice(0, MAX_CURVES)) {
        let curve = this.byKey.get(key) || this.begin(key);
        if (x < (curve.x.at(-1) ?? x) - (round ? 0 : 60)) { // the clock was set back, or the job begins again
          this.past = { times: [], series: {} };
          this.forget();
          curve = this.begin(key);
        }
        const isNumber = !isStale && Math.abs(told[key]) < LARGEST; // while stale, nobody knows them
        const isOver = ended !== undefined && (told[key] == null || told[key] === curve.y.at(-1)); // the last point is there
        if (!isOver && byRound === round > 0 && x >= (curve.x.at(-1) ?? 0)) add(curve, x, isNumber ? told[key] : null);
        curve.box.dataset.newest = number(curve.y.at(-1));
        const lines = [curve.x, curve.y, ...(limit ? [curve.x.map(() => Number(limit))] : [])];
        if (!curve.plot && curve.x.length > 1) curve.plot = plotOf(curve, lines, byRound);
        else if (curve.plot) curve.plot.setData(lines);
        curve.box.hidden = !curve.plot;
        curve.box.dataset.points = curve.x.length;
      }
    }
    async remember(address) {
      const of = this.of;
      let note = "The GlobalManager does not tell what was before this page was opened.";
      try {
        const answer = await fetch(address);
        if (answer.ok && !answer.redirected) {
          const told = await answer.json();
          if (this.of !== of) return; // of another job of this name, or of another version
          const shift = told.is_by_round ? 0 : Date.now() / 1000 - told.now;
          this.past = { ...told, times: told.times.map((each) => each + shift) };
          note = told.note;
        }
      } catch { /* the note says so */ }
      tell(`${this.id}-past`, note);
      this.forget();
      this.draw();
    }
  }
  const plotOf = (curve, lines, byRound) => {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const whole = (_plot, values) => values.map((value) => Number.isInteger(value) ? value : "");
    const clock = (plot, values) => values.map((value) => {
      const at = new Date(value * 1000), seconds = plot.scales.x.max - plot.scales.x.min;
      return seconds > 172800 ? at.toLocaleDateString() : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds < 300 ? "2-digit" : undefined, hour12: false });
    });
    const span = (_plot, low, high) => byRound ? [Math.min(low, high - 1), high] : [Math.min(low, high - 60), high]; // seconds, never their parts
    const line = { stroke: colour("--link"), fill: colour("--link") + "1a", width: 2, points: { show: false } };
    const limit = { stroke: colour("--bad"), dash: [6, 4], width: 2, points: { show: false } };
    return new uPlot({
      width: Math.max(120, curve.box.clientWidth - 28), height: 140, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: !byRound, range: span } },
      axes: [{ ...axis, size: 28, space: 70, values: byRound ? whole : clock }, { ...axis, size: 62, values: (_plot, values) => values.map(number) }],
      series: [{}, line, limit].slice(0, lines.length),
      hooks: { setCursor: [({ cursor }) => { curve.shown.textContent = cursor.idx == null ? "" : number(curve.y[cursor.idx]); }] },
    }, lines, curve.box);
  };
  const add = (curve, x, value) => {
    if (curve.x.at(-1) === x) { curve.y[curve.y.length - 1] = value; return; }
    curve.x.push(x);
    curve.y.push(value);
    if (curve.x.length > MAX_POINTS) { curve.x.shift(); curve.y.shift(); }
  };
  const drawings = [new Curves("metrics"), new Curves("guard")];
  const draw = () => { for (const each of drawings) each.draw(); };
  addEventListener("resize", () => {
    for (const { byKey } of drawings) for (const { plot, box } of byKey.values()) if (plot) plot.setSize({ width: Math.max(120, box.clientWidth - 28), height: 140 });
  });

  // ---- the log of a pod ----

  const MAX_LINES = 5000;
  const follow = (log) => {
    const lines = new EventSource(log.dataset.source);
    const append = (...parts) => {
      const isAtEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 30;
      log.append(...parts, "\n");
      while (log.childNodes.length > 3 * MAX_LINES) log.firstChild.remove();
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    };
    const note = (text) => append(Object.assign(document.createElement("i"), { textContent: text }));
    lines.onopen = () => log.replaceChildren(); // the newest lines come again
    lines.addEventListener("line", ({ data }) => {
      const [, at, text] = /^(\d{4}-\S+) ?(.*)$/s.exec(data) ?? [null, "", data];
      const time = Object.assign(document.createElement("time"), { dateTime: at, textContent: at.slice(11, 19), title: at });
      append(time, at ? "  " + text : text);
    });
    lines.addEventListener("page", () => location.reload()); // the session is over: to the login
    lines.addEventListener("note", ({ data }) => note(data));
    lines.addEventListener("end", () => lines.close());
    lines.onerror = () => {
      if (lines.readyState === EventSource.CLOSED) note("The log is not to be had now, perhaps because too many logs are open: close some, wait a minute, and load this page again.");
    };
  };

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
    const actions = document.getElementById("actions");
    const isOther = Boolean(job) && job.dataset.uid !== after.dataset.uid;
    after.hidden = actions.hidden = !job || isOther;
    tell("other", isOther ? "This is another job of the same name: load this page again for its events and actions." : "");
    if (!job) return;
    for (const form of actions.querySelectorAll("form[data-action]")) form.hidden = !(job.dataset.offers ?? "").split(" ").includes(form.dataset.action);
    const replicas = actions.querySelector("[name=replicas]");
    if (replicas && replicas.value === replicas.defaultValue) replicas.value = replicas.defaultValue = job.dataset.replicas;
  };

  if (window.Idiomorph) { // an update does not close what the reader has opened, and leaves curves alone
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => name !== "open" || node.localName !== "details";
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !/-(curves|past)$/.test(node.id);
  }
  // A map has hundreds of cells, and is one stop of the Tab key.
  addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const map = event.target.closest?.(".map");
    if (!step || !map || event.altKey || event.ctrlKey || event.metaKey) return;
    const cells = [...map.querySelectorAll(".cell")];
    const place = cells.indexOf(event.target) + step;
    cells[Math.max(0, Math.min(place, cells.length - 1))].focus();
    event.preventDefault();
  });
  // Filters act at once, and the address holds them.
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!detail.successful || !detail.elt.matches?.(".filters")) return;
    const query = new URLSearchParams([...new FormData(detail.elt)].filter((each) => each[1]));
    history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
  });
  addEventListener("change", ({ target }) => { if (target.matches(".namespace select")) target.form.requestSubmit(); });
  document.addEventListener("htmx:afterSwap", () => { tellAges(); draw(); offer(); });
  addEventListener("DOMContentLoaded", () => {
    const log = document.getElementById("log"), address = new URL(location);
    if (log) follow(log);
    if (address.searchParams.has("done")) { // said once, not again when the page is loaded again
      address.searchParams.delete("done");
      history.replaceState(null, "", address);
    }
    tellAges(); draw(); offer();
    setInterval(() => { tellAges(); watch(); }, 1000);
  });
  setInterval(draw, 10000);
})();
