// The living part of the page. Without this file everything can still be read, and every form works.
"use strict";

(() => {
  const live = document.getElementById("live");
  const stream = document.body.dataset.stream;
  const byId = (id) => document.getElementById(id);

  // How often at most: twice a second on news, every two seconds for clocks, and never more than a part of the time.
  const NEWS_MS = 500, CLOCK_MS = 2000, HIDDEN_MS = 15000, SERIES_MS = 5000, SAY_MS = 8000, ASLEEP_MS = 60000, ANSWER_MS = 20000;
  const PARTS = ["live", "live-picture", "live-plan", "live-members", "live-guards", "live-events", "strip"];

  // ---- In words: live, reconnecting, ended. -------------------------------------------------------------------

  const WORDS = { live: "live", reconnecting: "reconnecting…", ended: "ended" };
  let state = "still";

  function show(next, words) {
    const box = byId("state");
    if (!box || (state === next && !words)) return;
    if (next === "reconnecting" && state === "live") say("The connection is lost. Trying again.");
    if (next === "live" && state === "reconnecting") say("Connected again.");
    state = next;
    box.dataset.state = next;
    byId("state-words").textContent = words || WORDS[next];
  }

  let said = "";
  function say(text) {
    if (!text || text === said) return;
    said = text;
    byId("say").textContent = text;
  }

  // ---- Asking for the part that changes. ----------------------------------------------------------------------

  let busy = false, asked = false, ended = false, begun = 0, took = 0, last = "", timer = 0, opened = false;

  function soon() {
    if (ended) return;
    if (busy) { asked = true; return; }
    if (timer) return;
    const gap = document.hidden ? HIDDEN_MS : Math.max(NEWS_MS, took * 4);
    timer = setTimeout(refresh, Math.max(0, begun + gap - performance.now()));
  }

  function refresh() {
    clearTimeout(timer);
    timer = 0;
    if (ended || busy || !live) return;
    busy = true;
    begun = performance.now();
    window.htmx.trigger(live, "refresh");
  }

  function settled(ok) {
    busy = false;
    took = performance.now() - begun;
    if (ended) return;
    show(ok && opened ? "live" : "reconnecting");
    if (asked) { asked = false; soon(); }
  }

  function end(words) {
    ended = true;
    if (source) source.close();
    show("ended", words);
    say(words);
  }

  // A swap would tear away what somebody is marking, pressing or filling in; then it waits for the next time.
  function inUse() {
    const marked = window.getSelection();
    const inParts = (node) => node && PARTS.some((id) => byId(id) && byId(id).contains(node));
    if (marked && !marked.isCollapsed && inParts(marked.anchorNode)) return true;
    if (document.querySelector("#live :active, .stacked :active, #strip :active")) return true;
    const focused = document.activeElement;
    return Boolean(focused && inParts(focused) && focused.matches("input, select, textarea"));
  }

  // Whoever stands on a link by the keyboard stands on the same link afterwards.
  let place = null;
  function keepPlace() {
    const focused = document.activeElement;
    const part = PARTS.map(byId).find((each) => each && each !== focused && each.contains(focused));
    place = null;
    if (!part) return;
    const same = focused.id ? [focused] : alike(part, focused);
    place = { part: part.id, id: focused.id, key: keyOf(focused), index: Math.max(0, same.indexOf(focused)) };
  }
  const keyOf = (node) => node.tagName + " " + (node.getAttribute("href") || node.textContent);
  const alike = (part, node) => [...part.querySelectorAll(node.tagName)].filter((each) => keyOf(each) === keyOf(node));
  function findPlace() {
    if (!place || (document.activeElement && document.activeElement !== document.body)) return;
    const part = byId(place.part);
    const tag = place.key.split(" ", 1)[0];
    const same = part ? [...part.querySelectorAll(tag)].filter((each) => keyOf(each) === place.key) : [];
    const target = (place.id && byId(place.id)) || same[place.index] || same[0] || null;
    if (target) target.focus({ preventScroll: true });
  }

  function swapped() {
    findPlace();
    offerCopies();
    const head = document.querySelector("#live [data-digest]"), pinned = byId("preview");
    if (head && pinned && byId("changed")) byId("changed").hidden = head.dataset.digest === pinned.dataset.digest;
    tellChanges();
  }

  // ---- Saying what matters, once. -----------------------------------------------------------------------------

  let wrong = null, toldAt = 0;
  function wrongNow() {
    const jobs = [...document.querySelectorAll('tr[data-mood="bad"]')].map((row) => row.dataset.job);
    const problems = [...document.querySelectorAll("#problems .problem-text")].map((each) => each.textContent);
    return [...jobs, ...problems.map((text) => text.replace(/\d+/g, "#"))];
  }
  function tellChanges() {
    const now = wrongNow(), before = wrong, texts = document.querySelectorAll("#problems .problem-text");
    if (before !== null && performance.now() - toldAt < SAY_MS) return;
    wrong = now;
    if (before === null) return;
    const fresh = now.filter((each) => !before.includes(each));
    if (!fresh.length && !(before.length && !now.length)) return;
    toldAt = performance.now();
    say(fresh.length ? "Look here: " + (texts.length ? texts[0].textContent : fresh.join(", ")) : "All is well again.");
  }

  // ---- News from the server. ----------------------------------------------------------------------------------

  let source = null, again = 1000, asleep = 0;
  function listen() {
    if (ended) return;
    if (source) source.close();
    source = new EventSource(stream);
    source.onopen = () => { opened = true; again = 1000; last = ""; soon(); };
    source.addEventListener("transition", soon);
    source.onerror = () => {
      opened = false;
      if (ended) return;
      show("reconnecting");
      // A browser that has given up is made to try again; every try finds out by a fetch what is true.
      if (source.readyState === EventSource.CLOSED) { setTimeout(listen, again); again = Math.min(again * 2, 15000); }
    };
  }

  function watchHtmx() {
    live.addEventListener("htmx:beforeSwap", (event) => {
      const detail = event.detail, status = detail.xhr.status;
      if (status === 404 || status === 401 || status === 403) {
        end(status === 404 ? "ended: it is gone" : "ended: log in again");
        detail.shouldSwap = true;
        detail.isError = false;
        for (const id of PARTS.slice(1)) if (byId(id)) byId(id).replaceChildren();
        return;
      }
      const text = detail.xhr.responseText;
      if (status !== 200 || text === last || inUse()) { detail.shouldSwap = false; return; }
      last = text;
      keepPlace();
    });
    live.addEventListener("htmx:afterRequest", (event) => settled(event.detail.successful));
    document.body.addEventListener("htmx:afterSettle", swapped);
  }

  function watchVisits() {
    document.addEventListener("visibilitychange", () => {
      clearTimeout(asleep);
      if (document.hidden) {
        // Browsers allow few connections to one server: a page that nobody sees gives its own back.
        asleep = setTimeout(() => { if (source) source.close(); opened = false; }, ASLEEP_MS);
      } else if (!ended) {
        if (!source || source.readyState === EventSource.CLOSED) listen();
        refresh();
      }
    });
    window.addEventListener("pagehide", () => source && source.close());
    window.addEventListener("pageshow", (event) => { if (event.persisted) { listen(); refresh(); } });
  }

  function clocks() {
    if (busy && performance.now() - begun > 2 * ANSWER_MS) settled(false);
    if (!document.hidden && !ended && !busy && performance.now() - begun >= Math.max(CLOCK_MS, took * 8)) refresh();
    setTimeout(clocks, CLOCK_MS / 2);
  }

  // ---- The last while, drawn. ---------------------------------------------------------------------------------

  const TITLES = { unowned: "No owner", moves: "Moves so far", load: "Load: smallest, mean, largest", replicas: "Replicas", error: "Largest error" };
  const SPLIT = { unowned: "Missing replicas", moves: "Reports so far" };
  // Sides have the colours that they have in the picture; what is desired of them is dashed.
  const COLOURS = {
    unowned: "--bad", moves: "--moving", loadMin: "--dim", loadMean: "--held", loadMax: "--ink",
    spot: "--ok", desiredSpot: "--ok", onDemand: "--held", desiredOnDemand: "--held",
  };
  const WANTED = ["desiredSpot", "desiredOnDemand"];
  const KEYS = { onDemand: "on-demand", desiredSpot: "desired spot", desiredOnDemand: "desired on-demand" };
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const MANY = ["--held", "--good", "--moving", "--dim"], DASHES = [undefined, undefined, [5, 3], [2, 3]];
  const plots = new Map();
  let shade = "", seenAt = 0;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const groupOf = (name) => (name.startsWith("load") ? "load" : TITLES[name] ? name : "replicas");

  // A value holds until the next point, and the last one until now.
  function drawSeries(box, told) {
    const groups = {};
    for (const name of Object.keys(told.series)) (groups[groupOf(name)] ||= []).push(name);
    const now = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    if (shade !== now) { plots.forEach((plot) => plot.destroy()); plots.clear(); box.replaceChildren(); shade = now; }
    box.hidden = false;
    seenAt = told.now;
    const titles = "loadMin" in told.series || "error" in told.series ? TITLES : { ...TITLES, ...SPLIT };
    byId("series-empty").hidden = true;
    for (const [group, names] of Object.entries(groups)) {
      const held = (name) => { const all = told.series[name]; return [...all, all[all.length - 1]]; };
      const rows = [[...told.at, Math.max(told.now, told.at[told.at.length - 1] + 1)], ...names.map(held)];
      const key = group + ":" + names.join();
      if (plots.has(key)) plots.get(key).setData(rows);
      else plots.set(key, makeChart(box, titles[group] || group, group, names, rows));
    }
  }

  function makeChart(box, words, group, names, rows) {
    const frame = document.createElement("div"), place = document.createElement("div"), title = document.createElement("p");
    title.className = "chart-title";
    title.textContent = words;
    if (names.length > 1 && group !== "load") names.forEach((name, i) => title.append(" ", key(name, i)));
    place.className = "chart";
    frame.className = "chart-frame";
    frame.append(title, place);
    box.append(frame);
    const plot = new window.uPlot(options(place, group, names), rows, place);
    new ResizeObserver(() => place.clientWidth && plot.setSize({ width: place.clientWidth, height: 110 })).observe(place);
    return plot;
  }

  // What a line is called, and how it is drawn: its dashes tell it apart where colours do not.
  function key(name, i) {
    const made = document.createElement("span");
    made.className = "key key-" + (i % MANY.length);
    made.textContent = KEYS[name] || name;
    if (COLOURS[name]) {
      made.style.borderBottomColor = `var(${COLOURS[name]})`;
      made.style.borderBottomStyle = WANTED.includes(name) ? "dashed" : "solid";
    }
    return made;
  }

  function options(place, group, names) {
    const thin = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--dim"), grid: thin, ticks: { ...thin, size: 4 }, font: "11px system-ui, sans-serif" };
    const whole = (u, marks) => marks.map((each) => (Number.isInteger(each) ? String(each) : group === "error" ? each.toFixed(1) : ""));
    const stepped = window.uPlot.paths.stepped({ align: 1 });
    return {
      width: place.clientWidth, height: 110, legend: { show: false }, padding: [6, 26, 0, 0],
      cursor: { show: false }, select: { show: false },
      tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [{ ...axis, size: 22, space: 90, values: clockMarks }, { ...axis, size: 44, space: 26, values: whole }],
      scales: { y: { range: (u, low, high) => [0, Math.max(1, (high || 0) * 1.15)] } },
      series: [{}, ...names.map((name, i) => ({
        stroke: colour(COLOURS[name] || MANY[i % MANY.length]), paths: stepped, points: { show: false },
        width: name === "loadMin" || name === "loadMax" ? 1 : 2,
        dash: name === "loadMin" || WANTED.includes(name) ? [4, 3] : COLOURS[name] ? undefined : DASHES[i % DASHES.length],
        fill: name === "unowned" ? colour("--bad-soft") : undefined,
      }))],
    };
  }

  // A time of today by its clock, one of another day with that day: 31 Dec 02:00.
  function clockMarks(u, marks) {
    const long = marks.length > 1 && marks[marks.length - 1] - marks[0] > 600;
    const dayOf = (at) => new Date(at * 1000).toISOString().slice(0, 10);
    return marks.map((at) => {
      const when = new Date(at * 1000), clock = when.toISOString().slice(11, long ? 16 : 19);
      if (dayOf(at) === dayOf(seenAt)) return clock;
      return `${when.getUTCDate()} ${MONTHS[when.getUTCMonth()]} ${clock.slice(0, 5)}`;
    });
  }

  async function series() {
    const section = byId("series"), box = byId("charts");
    if (!section || !box || !window.uPlot || ended) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(section.dataset.src, { headers: { Accept: "application/json" } });
        if (answer.ok) {
          const told = await answer.json();
          if (told.at.length) drawSeries(box, told);
        }
      } catch { /* The state of the connection is said elsewhere. */ }
    }
    setTimeout(series, SERIES_MS);
  }

  // ---- Small things. ------------------------------------------------------------------------------------------

  function offerCopies() {
    for (const each of document.querySelectorAll("[data-copy]")) each.hidden = !navigator.clipboard;
  }

  function copying() {
    offerCopies();
    document.addEventListener("click", async (event) => {
      const button = event.target.closest && event.target.closest("[data-copy]");
      if (!button) return;
      await navigator.clipboard.writeText(button.closest(".command").querySelector("code").textContent);
      button.textContent = "Copied";
      say("Copied.");
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  function forgetDone() {
    const here = new URL(location.href);
    if (!here.searchParams.has("done")) return;
    here.searchParams.delete("done");
    history.replaceState(null, "", here.pathname + here.search);
  }

  copying();
  forgetDone();
  // htmx takes the page up when it is there in full; to ask it before would ask nobody.
  document.addEventListener("DOMContentLoaded", () => {
    if (!live || !stream || !window.htmx) return;
    window.htmx.config.timeout = ANSWER_MS;
    wrong = wrongNow();
    watchHtmx();
    watchVisits();
    listen();
    setTimeout(clocks, CLOCK_MS);
    setTimeout(series, 0);
  });
})();
