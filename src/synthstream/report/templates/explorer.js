"use strict";
// The explorer: what was measured, by time, value and pair of values. Its numbers come as scripts, so that it also works
// from a disk: facts.js calls synthstream.facts, and releases/NNNNNN/cells.js calls synthstream.cells.
const synthstream = (() => {
  const REACH = 2, FALSE = .05, MOST = 6, DAY = 864e5, loaded = {}, waiting = {};
  const byId = id => document.getElementById(id), colour = name => `var(--${name})`;
  const iso = at => new Date(at).toISOString().slice(0, 10);
  const moment = at => new Date(at).toISOString().slice(0, at % DAY ? 16 : 10).replace("T", " ");
  // The days of a span, with its last one; to the minute where it begins or ends within a day.
  const days = (from, end, to = " to ") => from % DAY || end % DAY ? `${moment(from)} to before ${moment(end)}` : end - from > DAY ? iso(from) + to + iso(end - 1) : iso(from);
  const round = v => v == null ? null : Math.abs(v) < 100 ? Math.round(v * 10) / 10 : Math.round(v);
  const said = v => v == null ? "–" : round(v).toLocaleString("en");
  const ranged = (v, stderr) => v == null || stderr == null ? said(v) : `${said(v)} (${rangeOf(v, stderr)})`;
  const rangeOf = (v, stderr) => `${said(v - REACH * stderr)} to ${said(v + REACH * stderr)}`;
  let facts, at, offsets, turn = 0, shown = {}, unread = [];

  // -- numbers --------------------------------------------------------------------------------------------------------
  function cellsOf(tick) {
    return waiting[tick] ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `../releases/${String(tick).padStart(6, "0")}/cells.js`;
      script.onload = () => done(loaded[tick]);
      script.onerror = () => failed(new Error(`The release of all events ${days(at[0], at[tick + 1], " up to and including ")} (tick ${tick}) is not here.`));
      document.head.append(script);
    });
  }
  const find = columns => facts.tables.findIndex(t => t[0].join() === columns.join());
  // Where a column's values begin in the series.
  const singleOf = column => facts.tables.slice(0, find([column])).reduce((sum, t) => sum + (t[0].length < 2 && inSeries(t[0]) ? t[1] : 0), 0);
  const inSeries = ([column]) => facts.columns[column]?.series !== false;
  // First and last of the whole ticks that hold all from one date to before another; where none is given, to either end.
  function ticksOf(from, to) {
    let first = at.findLastIndex(a => a <= from), last = at.findIndex(a => a >= to) - 1;
    const newest = at.length - 2;
    if (last < 0) last = to <= at[0] ? 0 : newest;
    first = Math.min(Math.max(first, 0), newest);
    return [first, Math.max(first, last)];
  }
  // What a table holds in a span: counts, their errors, and the ticks whose difference they are.
  async function windowOf(table, [first, last]) {
    const [columns, size, noise, late] = facts.tables[table], begin = offsets[table], moments = facts.moments;
    let until = last, after = noise < 0 ? -1 : first - 1;
    if (late && moments.length) {
      until = moments.find(r => r >= last) ?? moments.at(-1);
      after = moments.findLast(r => r < first && r < until) ?? -1;
    }
    const now = await cellsOf(last), end = await cellsOf(until), begun = after < 0 ? null : await cellsOf(after);
    const part = (cells, name) => cells?.[name]?.slice(begin, begin + size);
    let measured = part(end, "measured") ?? [], before = part(begun, "measured");
    // Releases that an earlier version wrote in epochs have no covariances.
    const known = noise >= 0 && end.shared && end.stderr?.[table] != null && end.since[table] === 0 && (after < 0 || (begun.shared && before?.[0] != null));
    if (!known) measured = [];
    const counts = first === 0 || noise < 0 ? part(now, "count") : null;
    const own = columns.length < 2 && facts.errors[facts.ticks.indexOf(last)]?.slice(singleOf(columns[0]));
    const found = { table, known, counts, own: own?.[0] == null ? null : own, terms: [[1, until]], first: after + 1, last: counts ? last : until, until };
    if (known && after >= 0) { measured = measured.map((m, i) => m - before[i]); found.terms.push([-1, after]); }
    return Object.assign(found, { measured, stderr: known ? Math.sqrt(Math.max(covariance(found, found), 0)) : null });
  }
  // Of the noise in two windows of one table; of a window with itself it is the variance.
  function covariance(a, b) {
    const noise = facts.tables[a.table][2];
    let sum = noise < 0 ? NaN : 0;
    for (const [u, s] of a.terms) for (const [v, t] of b.terms) {
      const { shared, ends } = loaded[Math.max(s, t)], first = Math.min(s, t);
      sum += u * v * shared[noise][ends ? ends.indexOf(first) : first];
    }
    return sum;
  }
  // Marks cells that noise alone could have filled: of those that are left, at most 5 % are expected to be empty
  // (Benjamini and Hochberg 1995). Chances are those of noise as it is, above 0, of the smaller of rows and measured.
  function hide(rows) {
    const chances = rows.map(r => r.stderr == null ? 0 : chance(Math.min(r.measured, r.rows ?? r.measured) / r.stderr)), sorted = chances.slice().sort((a, b) => a - b);
    const least = sorted.findLast((c, k) => c <= FALSE * (k + 1) / sorted.length) ?? -1;
    rows.forEach((r, k) => { r.noise = chances[k] > least; });
  }
  // That noise is so many standard errors above 0: of Laplace noise, whose sums have lighter tails, or of Gaussian noise
  // (Abramowitz and Stegun 7.1.26, within 1e-7).
  function chance(z) {
    if (z <= 0) return 1 - (z ? chance(-z) : .5);
    if (facts.laplace) return Math.exp(-Math.SQRT2 * z) / 2;
    const t = 1 / (1 + .3275911 * z / Math.SQRT2);
    return t * (.254829592 + t * (-.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * Math.exp(-z * z / 2) / 2;
  }
  const spanOf = (w, last = w.last) => days(at[w.first], at[last + 1]);
  // Why two spans have no difference, in words; empty if they have one. Of two counts from the start of the stream it is
  // what came in between; of other spans it would be that of their lengths.
  function unlike([a, b]) {
    if (!a.known || !b?.known) return "";
    const many = w => w.until - w.first + 1, same = a.first === b.first && a.until === b.until;
    const why = a.first === 0 && b.first === 0 ? "" : a.first <= b.until && b.first <= a.until ? "overlap" : many(a) !== many(b) ? "differ in length" : "";
    return why || same ? `No differences are shown: what was measured counts ${same ? `${spanOf(a, a.until)} on both sides` :
      `${spanOf(a, a.until)} (${ticksName(many(a))}) and ${spanOf(b, b.until)} (${many(b)}), which ${why}`}.` : "";
  }

  // -- charts -----------------------------------------------------------------------------------------------------------
  const em = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;  // letters are as large as the reader's
  const config = {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: colour("muted"), titleColor: colour("muted"), gridColor: colour("grid"), domainColor: colour("muted"),
      tickColor: colour("muted"), labelFontSize: 12 * em, titleFontSize: 12 * em, titleFontWeight: "normal", labelSeparation: 8 },
    legend: { labelColor: colour("ink"), titleColor: colour("muted"), labelFontSize: 12 * em, titleFontSize: 11 * em, titleFontWeight: "normal", titleLimit: 500, labelLimit: 300, orient: "bottom", labelOverlap: "greedy", labelSeparation: 2 },
  };
  async function draw(place, { left = 0, ...spec }, words) {
    const length = Math.min(Math.max(place.clientWidth - left, 100), 264 * em);  // of the legend: it ends where the room does
    const scroll = document.createElement("div"), plot = document.createElement("div");
    scroll.className = "sideways"; scroll.setAttribute("role", "img"); scroll.setAttribute("aria-label", words);
    plot.className = "plotted"; plot.setAttribute("aria-hidden", "true");  // its numbers are in the table below
    scroll.append(plot); place.append(scroll);
    const { view } = await vegaEmbed(plot, { config: { ...config, legend: { ...config.legend, gradientLength: length } }, description: words, ...spec }, { actions: false, renderer: "svg", ast: true });
    if (scroll.scrollWidth > scroll.clientWidth) scroll.tabIndex = 0;
    plot.addEventListener("click", event => event.target.dispatchEvent(new PointerEvent("pointermove", event)));  // a finger does not hover
    return view;
  }
  const hush = () => byId("vg-tooltip-element")?.classList.remove("visible");
  // What a chart of counts shows, in words.
  function summary(rows, field = "bar", name = r => r.value) {
    const sorted = rows.toSorted((a, b) => b[field] - a[field]), noise = rows.filter(r => r.noise).length, one = r => `${name(r)} (${said(r[field])})`;
    return rows.length < 2 ? sorted.map(r => `${said(r[field])} events`).join() : `Most in ${one(sorted[0])}, fewest in ${one(sorted.at(-1))}${noise ? `; ${noise} of ${rows.length} within noise` : ""}`;
  }
  function summaryOfSeries(rows, name) {
    const own = rows.filter(r => r.value === name), all = own.map(r => r.measured), newest = own.at(-1);
    return `${name}: ${ranged(newest.measured, newest.stderr)} in the newest of ${own.length}, lowest ${said(Math.min(...all))}, highest ${said(Math.max(...all))}`;
  }
  // A part of a section with a heading of its own, for charts that stand alone in a picture.
  function headed(place, words) {
    const part = document.createElement("div"), title = document.createElement("h3");
    title.textContent = words; part.style.minWidth = 0; part.append(title); place.append(part);
    return part;
  }
  const bandOf = m => m.measured == null || m.stderr == null ? {} :
    { low: m.measured - REACH * m.stderr, high: m.measured + REACH * m.stderr };
  // With a mark that nobody sees, as a tooltip takes a title of "image" or "title" for something else.
  const tips = fields => fields.map(([field, title, type]) => ({ field, title: `${title}\u200b`, ...(type ? { type } : { type: "quantitative", format: ",.0f" }) }));
  // Names of what is counted, then its synthetic rows, and what was measured with its range.
  const tipsOf = (w, ...names) => tips([...names.map(([field, title]) => [field, title, "nominal"]), ...(w.counts ? [["rows", "synthetic rows"]] : []), ...(w.own || w.known ? [["told", w.own ? "estimated" : "measured", "nominal"]] : [])]);
  // Keys of the table below: no name of a column is taken for one of its own, or sorted as a number.
  const key = name => /^(\d+|(start|end|end of measured|rows|measured|stderr)( beside)?|difference|stderr of difference)$/.test(name) ? `${name} ` : name;

  function seriesRows() {
    const { column, values, span, every } = shown, table = find([column]), steps = facts.steps[every];
    const labels = facts.columns[column].labels, rows = [], place = singleOf(column);
    const number = tick => facts.ticks.indexOf(tick);
    const spans = steps?.[0] ?? facts.ticks.map(t => [0, t]), noise = facts.tables[table][2], each = steps && every !== "start";
    spans.forEach(([first, last, whole = true], k) => {
      if ((each ? first : last) < span[0] || last > span[1] || number(last) < 0 || (first && number(first - 1) < 0)) return;
      const variance = steps?.[1][k][noise];
      if (steps && variance == null) return;
      for (const v of values) {
        const running = tick => facts.singles[number(tick)][place + v];
        const measured = running(last) - (first ? running(first - 1) : 0);
        const row = { value: labels[v], start: moment(at[first]), end: moment(at[last + 1]), days: days(at[first], at[last + 1]), measured, whole,
          stderr: steps ? Math.sqrt(Math.max(variance, 0)) : facts.errors[number(last)]?.[place + v] ?? null };
        rows.push({ ...row, ...bandOf(row), when: at[each ? first : last + 1] });
      }
    });
    return rows;
  }
  async function series() {
    byId("series").hidden = byId("values").parentElement.hidden = !inSeries([shown.column]);
    if (byId("series").hidden) return;
    const { column } = shown, rows = seriesRows(), section = byId("series"), names = [...new Set(rows.map(r => r.value))];
    const { name, labels } = facts.columns[column], measures = shown.every in facts.steps, by = shown.every === "start" ? "from the start" : `by ${stepName(shown.every)}`;
    const words = `${name}${labels.length > 1 ? `: ${names.join(", ")}` : ""}, ${measures ? `${by}; measured, with noise` : "from the start; synthetic rows"}`;
    const place = rows.length ? headed(emptied(section), words) : emptied(section);
    if (!rows.length) {
      section.querySelector("[data-note]").textContent = shown.values.length ? "Nothing is counted by this length of time within these dates: choose more dates, or a shorter one." : "No value is chosen.";
      return table(section, []);
    }
    const dates = Object.values(Object.groupBy(rows, r => r.when)).map(same => same.reduce((all, r) => Object.assign(all,
      { [`v${names.indexOf(r.value)}`]: ranged(r.measured, r.stderr) }), { ...same[0] }));
    const scale = { domain: names, range: [1, 2, 3, 4, 5, 6].map(i => colour(`s${i}`)) };
    const x = { field: "when", type: "temporal", scale: { type: "utc" }, title: null, axis: { format: every(rows), labelFlush: em === 1, ...ticksOn(rows, place.clientWidth) } };
    const legend = names.length > 1 ? { symbolOpacity: 1, symbolType: "stroke", symbolSize: 600, columns: place.clientWidth < 500 ? 1 : 6 } : null;
    const few = rows.length <= 2 * names.length, apart = few ? { xOffset: { expr: "datum.apart" } } : {};  // no error bar over another
    rows.forEach(r => { r.apart = (names.indexOf(r.value) - (names.length - 1) / 2) * 10; });
    const color = { field: "value", scale, title: name, legend };
    const partial = rows.some(r => !r.whole);
    const note = measures
      ? (shown.every === "start" ? "Each number counts all events from the start to before its date." : `Each number is the count of one ${stepName(shown.every)}, drawn where that begins.`) + " Bands reach two standard errors to both sides; noise can bring a number below 0. Drag over the chart to choose dates."
      : `This stream ${rows.some(r => r.stderr != null) ? "is of points: bands reach two standard errors of the estimates to both sides" : "measures its tables in another way"}; no error is known for single spans. Drag over the chart to choose dates.`;
    table(section, rows.map(({ value, start, end, measured, stderr, whole }) =>
      measures ? { value, start, end, measured, stderr, ...(partial ? { whole: whole ? "yes" : "no" } : {}) } : { value, end, rows: measured, ...(stderr == null ? {} : { stderr }) }));
    section.querySelector("[data-note]").textContent = note + (partial ? ` An open dot is a ${stepName(shown.every)} that is not complete.` : "")
      + (["month", "quarter", "year"].includes(shown.every) && rows.some(r => r.whole && !r.start.endsWith("-01")) ? ` A ${shown.every} is the whole ${ticksName()} that begin in that of the calendar: some have one more than others, and so more events.` : "");
    const view = await draw(place, { width: "container", height: 260, data: { values: rows }, layer: [
      ...(rows.some(r => r.low == null) ? [] : [{ mark: few ? { type: "rule", strokeWidth: 2, ...apart } : { type: "area", opacity: .2 }, encoding: { x, y: { field: "low", type: "quantitative" }, y2: { field: "high" }, color } }]),
      { params: [{ name: "drag", select: { type: "interval", encodings: ["x"] } }], mark: { type: "line", strokeWidth: 2, point: !partial && rows.length < 150 && { ...apart }, ...apart },
        encoding: { x, y: { field: "measured", type: "quantitative", title: measures ? `events, ${by}` : "synthetic rows, from the start", axis: { tickCount: 5 } }, color, strokeDash: { field: "value", scale: { domain: names }, title: name, legend } } },
      ...(partial ? [{ mark: { type: "point", size: 40, strokeWidth: 2, opacity: 1, ...apart }, encoding: { x, y: { field: "measured", type: "quantitative" }, color,
        fill: { condition: { test: "datum.whole", field: "value", scale, legend: null }, value: colour("paper") } } }] : []),
      { data: { values: dates }, params: [{ name: "near", select: { type: "point", on: "pointerover", fields: ["when"], clear: "pointerout" } }],
        mark: { type: "rule", strokeWidth: Math.max(4, place.clientWidth / dates.length), color: colour("muted") },
        encoding: { x, opacity: { condition: { param: "near", empty: false, value: .14 }, value: 0 },
          tooltip: tips([["days", "when", "nominal"], ...names.map((name, i) => [`v${i}`, name, "nominal"])]) } },
    ] }, `${words}. ${names.map(value => summaryOfSeries(rows, value)).join(". ")}.`);
    let chosen;
    view.addSignalListener("drag", (_, value) => { chosen = value.when; });
    place.addEventListener("pointerup", () => {
      if (chosen?.length === 2 && chosen[1] - chosen[0] > DAY) {
        byId("from").value = iso(chosen[0]); byId("to").value = iso(chosen[1]); chosen = null; update();
      }
    });
  }
  const every = rows => rows.length && rows.at(-1).when - rows[0].when < 200 * DAY ? "%Y-%m-%d" : "%b %Y";
  // Few dates have a label each, as many as there is room for.
  const ticksOn = (rows, room) => {
    const all = [...new Set(rows.map(r => r.when))], labels = Math.max(1, Math.floor((room / em - 40) / 90));
    const shown = all.filter((_, k) => k % Math.ceil(all.length / labels) === 0);
    return all.length > 2 * labels ? { tickCount: labels } : { values: { expr: `[${shown}]` } };
  };
  const ticksName = n => `${n ?? ""} ${stepName("tick").split(" ")[0]}${n === 1 ? "" : "s"}`.trim();
  const stepName = step => step === "start" ? "all from the start" : step === "tick" ? ({ "1w": "week", "1d": "day", "1mo": "month", "1h": "hour" }[facts.every] ?? `tick of ${facts.every}`) : step;

  const limit = room => Math.min(Math.max(room * .35, 130), 280 * em);  // of names at the side

  async function bars() {
    const column = facts.columns[shown.column], t = find([shown.column]), section = byId("bars");
    const windows = await Promise.all(shown.spans.map(s => windowOf(t, s)));
    const all = windows.map(w => column.labels.map((value, i) => {
      const row = { value, rows: w.counts?.[i] ?? null, measured: w.measured[i] ?? null, stderr: w.own?.[i] ?? w.stderr };
      const best = w.own ? row.rows : row.measured;
      return { ...row, ...bandOf({ measured: best, stderr: row.stderr }), told: ranged(best, row.stderr), bar: row.rows ?? Math.max(row.measured, 0), own: i >= column.values, order: i,
        noise: row.rows == null && Math.abs(row.measured) <= REACH * row.stderr };
    }));
    section.hidden = !!column.grid;  // of which a map says it
    if (column.grid) return places(all, windows);
    const order = column.ordered ? column.labels : all[0].slice().sort((a, b) => b.bar - a.bar).map(r => r.value);
    const low = Math.min(0, ...all.flat().map(r => r.low ?? 0)), high = Math.max(1, ...all.flat().map(r => Math.max(r.bar, r.high ?? 0)));
    const domain = [low && low - .03 * (high - low), high + .03 * (high - low)];  // no error bar touches the frame
    table(section, differences(windows, all, r => ({ value: r.value })));
    const note = (windows[0].counts ? `Bars show the synthetic rows${windows[0].own ? "; lines reach two standard errors of the estimates to both sides" : windows[0].known ? "; dots what was measured, with two standard errors to both sides" : ""}.` :
      "Bars show what was measured in these dates, with two standard errors to both sides; grey ones are within them, each taken by itself.")
      + (windows[0].known && facts.tables[t][3] ? ` This column is measured once in an epoch: what was measured is of events of ${spanOf(windows[0], windows[0].terms[0][1])}.` : "");
    windows.forEach((w, k) => { w.words = summary(all[k].filter(r => !r.own)); });
    shown.words = windows[0].words;
    await beside(section, note, windows, (w, room) => {
      const x = (field, more) => ({ field, type: "quantitative", title: "events", scale: { domain, nice: false }, axis: { tickCount: 5 }, ...more });
      const y = { field: "value", type: "nominal", sort: order, title: null, axis: { labelLimit: limit(room) } }, rows = all[windows.indexOf(w)];
      return { width: "container", height: (rows.length > 45 ? 13 : 19) * em * rows.length + 30, data: { values: rows }, encoding: { y, tooltip: tipsOf(w, ["value", column.name]) }, layer: [
        { mark: { type: "bar", height: { band: .7 } }, encoding: { x: x("bar"), x2: { datum: 0 }, color: { condition: { test: "datum.own || datum.noise", value: colour("bar-muted") }, value: colour("bar") } } },
        ...(rows.some(r => r.low == null) ? [] : [{ mark: { type: "rule", strokeWidth: 2, color: colour("error") }, encoding: { x: x("low"), x2: { field: "high" } } },
        { mark: { type: "point", size: 26, filled: true, opacity: 1, color: colour("error") }, encoding: { x: x("measured") } }]),
      ] };
    }, column.name);
    return places(all, windows);
  }

  // A column whose values are regions, drawn as the publisher's file has them, or cells of a grid.
  async function places(all, windows) {
    const section = byId("places"), { regions, names: [names, marks] = [[], ""], grid, values, name } = facts.columns[shown.column];
    section.hidden = !regions && !grid;
    if (section.hidden) return;
    const on = k => grid ? k < values : regions[k];
    const drawn = all.map(rows => {
      const own = rows.map((r, k) => ({ ...r, k }));
      hide(own);
      return own.filter(r => on(r.k));
    });
    windows.forEach((w, k) => { w.words = summary(drawn[k]); });
    shown.words ??= windows[0].words;
    const away = all[0].filter((_, k) => !on(k)).map(r => r.value);
    table(section, differences(windows, drawn, r => ({ value: r.value })));
    const note = `Colours show ${windows[0].counts ? "the synthetic rows" : "what was measured in these dates"}. Grey ${grid ? "cells" : "regions"} are empty, or noise alone could have filled them; of the coloured ones at most about one in twenty is expected to be empty in truth.${grid ? digitsOf(grid) : ""}${grid?.depth > 3 ? " A coarser grid shows more." : ""}${marks && ` On the map: ${marks}`}${away.length ? ` Not on the map: ${away.join(", ")}.` : ""}`;
    const scale = shades(drawn.flat(), "bar", true), tooltip = w => tipsOf(w, ["value", name]);
    if (grid) return beside(section, note, windows, (w, room) =>
      onGrid(room, drawn[windows.indexOf(w)], grid, scale, tooltip(w)), name);
    drawn.flat().forEach(r => { Object.assign(r, { type: "Feature", geometry: { type: "MultiPolygon", coordinates: regions[r.k] } }); });
    await beside(section, note, windows, (w, room) => ({ left: 12, width: Math.min(room - 12, 520), height: Math.min(room - 12, 420), projection: { type: "identity" },
      layer: [{ data: { values: drawn[windows.indexOf(w)] }, mark: { type: "geoshape", stroke: colour("paper"), strokeWidth: 1 }, encoding: { color: scale, tooltip: tooltip(w) } },
        ...[{ stroke: colour("paper"), strokeWidth: 3, strokeJoin: "round" }, {}].map(halo => ({ data: { values: names }, mark: { type: "text", fontSize: Math.min(11 * em, 14), color: colour("ink"), tooltip: null, ...halo },
          encoding: { longitude: { field: "0", type: "quantitative" }, latitude: { field: "1", type: "quantitative" }, text: { field: "2" } } }))] }), name);
  }
  // What the digits of a cell's name mean: the first coordinate counts twice.
  function digitsOf({ sides: [[x], [y]], across, degrees }) {
    const [one, two] = across === 1 ? [x, y] : [y, x];
    const names = !degrees ? ["low in both", `high in ${one}`, `high in ${two}`, "high in both"]
      : across === 1 ? ["south-west", "south-east", "north-west", "north-east"] : ["south-west", "north-west", "south-east", "north-east"];
    return ` The name of a cell has a digit for each halving: the first says in which quarter of the map it lies (${names.map((name, k) => `${k} ${name}`).join(", ")}), the next in which quarter of that.`;
  }
  // Up to seven colours from the least count that has one to the largest, each of which some cell has; by number, so that
  // all are as long in the legend.
  function shades(rows, field, logarithmic) {
    const shown = rows.filter(r => !r.noise && r[field] > 0).map(r => r[field]), low = Math.min(...shown), high = Math.max(...shown);
    const all = [1, 2, 3, 4, 5, 6].map(k => logarithmic ? low * (high / low) ** (k / 7) : low + (high - low) * (k / 7) ** 1.5);
    const bounds = all.filter((bound, k) => bound > low && shown.some(v => v >= bound && !(v >= all[k + 1])));
    const grey = { test: `datum.noise || datum.${field} <= 0`, value: colour("m0") }, ranks = bounds.map((_, k) => k + 1);
    if (!bounds.length) return { condition: grey, value: colour("m7") };
    rows.forEach(r => { r.shade = bounds.filter(bound => r[field] >= bound).length; });
    const digits = [2, 3, 4].find(d => new Set(bounds.map(b => b.toPrecision(d))).size === bounds.length) ?? 5;
    return { condition: grey, field: "shade", type: "quantitative", title: `events, from ${said(low)} to ${said(high)}`,
      scale: { type: "threshold", domain: ranks, range: [0, ...ranks].map(k => colour(`m${7 - bounds.length + k}`)) },
      legend: { labelFontSize: 11 * em, labelExpr: `datum.value > 0 ? format([${bounds}][datum.value - 1], ",.${digits}r") : ""` } };
  }

  // Cells of a table of two columns; those that public constraints forbid say so.
  function pairRows(w) {
    const [ups, acrosses] = facts.tables[w.table][0].map(c => facts.columns[c]), bits = facts.never.find(([t]) => t === w.table)?.[1];
    return (w.counts ?? w.measured).map((_, k) => {
      const [i, j] = [Math.floor(k / acrosses.labels.length), k % acrosses.labels.length];
      const row = { up: ups.labels[i], across: acrosses.labels[j], i, j, rows: w.counts?.[k] ?? null, measured: w.measured[k] ?? null, stderr: w.stderr };
      return { ...row, told: ranged(row.measured, row.stderr), value: row.rows ?? row.measured, never: !!bits && parseInt(bits[k >> 2], 16) >> 3 - k % 4 & 1 };
    });
  }
  async function pairs() {
    const section = byId("pairs"), both = [shown.column, shown.with];
    const place = Math.max(find(both), find(both.reverse()));
    section.hidden = place < 0;
    if (place < 0) return;
    const [up, across] = facts.tables[place][0], ups = facts.columns[up], acrosses = facts.columns[across];
    const windows = await Promise.all(shown.spans.map(s => windowOf(place, s)));
    const flip = facts.map && facts.map[0] === up && facts.map[1] === across;
    const every = windows.map(pairRows), all = every.map(rows => rows.filter(r => !r.never));  // what public constraints forbid stays blank
    all.forEach(hide);
    const clear = all.flat().filter(r => !r.noise && r.value > 0), map = ups.edges.length && acrosses.edges.length;
    table(section, differences(windows, every, r => ({ [key(ups.name)]: r.up, [key(acrosses.name)]: r.across })));
    const color = shades(all.flat(), "value", map || ups.grid || acrosses.grid);
    const note = (windows[0].counts ? "Colours show the synthetic rows" : "Colours show what was measured in these dates") + ". A grey cell is empty, or noise alone could have filled it." + (all[0].length < every[0].length ? " Cells that public constraints forbid are blank." : "") + " Of the coloured ones at most about one in twenty is expected to be empty in truth." + (clear.length ? "" : " Here no cell stands out by itself; the numbers below have them all.")
      + (facts.tables[place][3] ? " Tables of two columns are measured when the stream has grown, so that dates are widened to such moments: the numbers below say to which." : "")
      + together(place);
    windows.forEach((w, k) => { w.words = summary(all[k], "value", r => `${r.up} with ${r.across}`); });
    await beside(section, note, windows, (w, room) => {
      const rows = all[windows.indexOf(w)], tooltip = tipsOf(w, ["up", ups.name], ["across", acrosses.name]);
      if (ups.grid || acrosses.grid) return byValue(room, rows, all[0], ups, acrosses, color, tooltip);
      if (map) return mapOf(room, rows, flip ? acrosses : ups, flip ? ups : acrosses, flip, color, tooltip);
      const long = column => Math.max(...column.labels.map(l => l.length)) * 7 * em, left = Math.min(long(ups), limit(room)) + 50;
      const step = Math.min(Math.max(Math.floor((room - left) / acrosses.labels.length), 15 * em), 80);
      const axis = { labelAngle: long(acrosses) < step ? 0 : -60, labelLimit: 220 };
      return { left, width: { step }, height: { step: (ups.labels.length > 14 ? 15 : 28) * em }, data: { values: rows }, mark: { type: "rect", stroke: colour("paper"), strokeWidth: .5 }, encoding: {
        x: { field: "across", type: "nominal", sort: acrosses.labels, title: acrosses.name, axis }, y: { field: "up", type: "nominal", sort: ups.labels, title: ups.name, axis: { labelLimit: limit(room) } }, color, tooltip } };
    }, `${ups.name} and ${acrosses.name}`);
  }
  // Whether the newest release tells two columns from independent ones, as in the report.
  function together(place) {
    const [, likely, noise] = facts.pairs.find(p => p[0] === place) ?? [];
    if (likely == null) return "";
    return ` In the newest release ${noise ? "there is no sign that the two are related" : "the two are related, beyond noise and chance"} (p ${likely < .001 ? "< 0.001" : `= ${likely}`}).`;
  }
  // A place together with another column: a map of each of its most frequent values.
  function byValue(room, rows, first, ups, acrosses, color, tooltip) {
    const [grid, other, cell, value] = ups.grid ? [ups, acrosses, "i", "j"] : [acrosses, ups, "j", "i"], sums = Array(other.values).fill(0);
    first.forEach(r => { if (r[value] < other.values) sums[r[value]] += r.value; });
    const frequent = sums.map((_, v) => v).sort((a, b) => sums[b] - sums[a]).slice(0, MOST).sort((a, b) => a - b);
    return frequent.map(v => ({ ...onGrid(Math.min(room, 330), rows.filter(r => r[value] === v && r[cell] < grid.values).map(r => ({ ...r, k: r[cell] })), grid.grid, color, tooltip),
      title: { text: `${other.name}: ${other.labels[v]}`, fontWeight: "normal", fontSize: 13 * em, color: colour("ink") } }));
  }
  // Cells of a grid of a place, at the position k, by the bits of both coordinates by turns.
  function onGrid(room, rows, { depth, sides, across, degrees }, color, tooltip) {
    const [x, y] = sides.map(([name, low, high]) => ({ name, edges: Array.from({ length: 2 ** depth + 1 }, (_, n) => low + (high - low) * n / 2 ** depth) }));
    const along = (k, first) => Array.from({ length: depth }, (_, b) => (k >> (2 * b + (first ? 1 : 0)) & 1) << b).reduce((sum, bit) => sum + bit, 0);
    return mapOf(room, rows.map(r => ({ ...r, i: along(r.k, across === 1), j: along(r.k, across === 0) })), y, x, false, color, tooltip, degrees);
  }
  // Two numbers as a map: where both are degrees, a mile is as long in both directions.
  function mapOf(room, rows, up, across, flip, color, tooltip, degrees = facts.map?.[2]) {
    const span = c => c.edges.at(-1) - c.edges[0];
    const values = rows.filter(r => (flip ? r.j : r.i) < up.edges.length - 1 && (flip ? r.i : r.j) < across.edges.length - 1).map(r => {
      const [i, j] = flip ? [r.j, r.i] : [r.i, r.j];
      return { ...r, y0: up.edges[i], y1: up.edges[i + 1], x0: across.edges[j], x1: across.edges[j + 1] };
    });
    const middle = (up.edges[0] + up.edges.at(-1)) / 2;
    const aspect = degrees ? span(across) * Math.cos(middle * Math.PI / 180) / span(up) : 1;
    const width = Math.min(Math.max(room - 80, 200), 460 * Math.max(aspect, .3));
    const digits = c => Math.max(0, -Math.floor(Math.log10(span(c) / 4))), name = c => degrees && !c.name.includes("(") ? `${c.name} (°)` : c.name;
    const axis = c => ({ tickCount: 4, grid: false, format: `.${digits(c)}f` }), scale = c => ({ domain: [c.edges[0], c.edges.at(-1)], nice: false, zero: false });
    return { left: 80, width, height: Math.round(width / Math.min(Math.max(aspect, .25), 4)), data: { values }, mark: { type: "rect" }, encoding: {
      x: { field: "x0", type: "quantitative", title: name(across), scale: scale(across), axis: axis(across) }, x2: { field: "x1" },
      y: { field: "y0", type: "quantitative", title: name(up), scale: scale(up), axis: axis(up) }, y2: { field: "y1" }, color, tooltip } };
  }

  // Rows for the table below: of two spans also the difference, with an error that knows what noise they share.
  function differences(windows, all, names) {
    const [a, b] = windows, stderr = b?.known && a.known && !unlike(windows) ?
      Math.sqrt(Math.max(a.stderr ** 2 + b.stderr ** 2 - 2 * covariance(a, b), 0)) : null;
    return all[0].map((r, k) => {
      const one = (row, w, end) => ({ [`start${end}`]: moment(at[w.first]), [`end${end}`]: moment(at[w.last + 1]), ...(w.known && w.until !== w.last ? { [`end of measured${end}`]: moment(at[w.until + 1]) } : {}), ...(w.counts ? { [`rows${end}`]: row.rows } : {}), ...(w.known ? { [`measured${end}`]: row.measured, [`stderr${end}`]: w.stderr } : w.own ? { [`stderr${end}`]: row.stderr } : {}) });
      const found = { ...names(r), ...one(r, a, "") };
      if (!b) return found;
      return { ...found, ...one(all[1][k], b, " beside"), ...(stderr == null ? {} : { difference: r.measured - all[1][k].measured, "stderr of difference": stderr }) };
    });
  }
  async function beside(section, note, windows, spec, name) {
    const place = emptied(section);
    section.querySelector("[data-note]").textContent = note;
    const warning = section.querySelector("[data-warning]");
    warning.textContent = unlike(windows); warning.hidden = !warning.textContent;
    const halves = windows.map(w => headed(place, `${name}, ${spanOf(w)}; ${w.counts ? "synthetic rows" : "measured, with noise"}`));  // both are there before either is measured
    for (const [i, half] of halves.entries()) {
      const made = spec(windows[i], half.clientWidth), words = half.textContent;
      if (!Array.isArray(made)) { await draw(half, made, `${words}. ${windows[i].words}.`); continue; }
      const maps = document.createElement("div");
      maps.className = "maps"; half.append(maps);
      for (const one of made) {
        const map = document.createElement("div");
        map.style.minWidth = 0; maps.append(map);
        await draw(map, one, `${words}: ${one.title.text}`);
      }
    }
  }
  function emptied(section) {
    const place = section.querySelector("[data-plots]");
    const fresh = place.cloneNode(false);
    hush();
    place.replaceWith(fresh);
    return fresh;
  }
  function table(section, rows) {
    const keys = Object.keys(rows[0] ?? {}), cell = (tag, text, scope) => {
      const made = document.createElement(tag); made.textContent = text; if (scope) made.scope = scope; return made; };
    const line = (cells) => { const tr = document.createElement("tr"); tr.append(...cells); return tr; };
    // Errors are shown as ranges; the CSV file has standard errors.
    const error = /^stderr(?= beside$| of difference$|$)/, of = (r, k) => r[k.replace(error, "measured").replace("measured of ", "")] ?? r[k.replace(error, "rows")];
    const text = (r, k) => error.test(k) && r[k] != null ? rangeOf(of(r, k), r[k]) : typeof r[k] === "number" ? said(r[k]) : r[k] ?? "–";
    const head = k => k.replace(/^end( of measured)?(?= beside$|$)/, (_, of) => of ? "measured before" : "before").replace(error, "95 % range");
    section.querySelector("thead").replaceChildren(line(keys.map(k => cell("th", head(k), "col"))));
    section.querySelector("tbody").replaceChildren(...rows.map(r => line(keys.map((k, i) => i ? cell("td", text(r, k)) : cell("th", r[k], "row")))));
    const quoted = v => v == null ? "" : typeof v === "number" ? +v.toFixed(3) : /[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v;
    const link = section.querySelector("[data-csv]");
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([[keys, ...rows.map(r => keys.map(k => r[k]))].map(r => r.map(quoted).join(",")).join("\n") + "\n"], { type: "text/csv" }));
  }

  // -- what is picked -----------------------------------------------------------------------------------------------
  const fields = ["column", "with", "from", "to", "every", "beside", "from2", "to2"];
  function option(select, pairs) { select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value))); }
  const labelsOf = column => inSeries([column]) ? facts.columns[column].labels : [];
  function largest(column, most) {
    const labels = labelsOf(column), place = singleOf(column);
    const newest = facts.singles.findLast(s => s[place] != null) ?? facts.singles.at(-1);
    const named = labels.map((_, i) => i).filter(i => !["other", "missing"].includes(labels[i]));
    return labels.includes("true") ? [labels.indexOf("true")] : named.sort((a, b) => newest[place + b] - newest[place + a]).slice(0, most);
  }
  // To begin with: the shortest length of time by which most of a few numbers stand out of their noise, if there is one.
  function clearStep(column, values, span) {
    return Object.keys(facts.steps).find(every => {
      shown = { column, values, span, every };
      const rows = every === "start" ? [] : seriesRows(), many = rows.length / values.length;
      return many >= 4 && many <= 130 && 2 * rows.filter(r => r.low > 0).length > rows.length;
    });
  }
  // To begin with: the first table of two columns that go together beyond noise and chance, and whose cells that stand out
  // hold half of the events; if there is none, the one in which they hold most.
  async function clearPair(column) {
    let best = -1, found;
    for (const [place, , within] of facts.pairs) {
      if (column != null && !facts.tables[place][0].includes(column)) continue;
      const rows = pairRows(await windowOf(place, [0, at.length - 2])).filter(r => !r.never), sum = of => of.reduce((all, r) => all + Math.max(r.value, 0), 0);
      hide(rows);
      const score = Math.min(2 * sum(rows.filter(r => !r.noise)) / (sum(rows) || 1), 1) / (within ? 2 : 1);
      if (score > best) [best, found] = [score, facts.tables[place][0]];
    }
    return found;
  }
  function valuesOf(column, chosen = largest(column, 3)) {
    byId("values").replaceChildren(...labelsOf(column).map((label, i) => {
      const made = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox"; box.value = i; box.checked = chosen.includes(i);
      made.append(box, label);
      return made;
    }));
  }
  function yearBefore() {
    const [first, last] = ticksOf(Date.parse(byId("from").value), Date.parse(byId("to").value));
    const near = tick => {  // as many ticks as there are, from the one that begins a year before, or as near to it as one does
      const day = new Date(at[tick]); day.setUTCFullYear(day.getUTCFullYear() - 1);
      return at.reduce((best, a, k) => Math.abs(a - day) < Math.abs(at[best] - day) ? k : best, 0);
    };
    const begin = near(first), end = first ? begin + last + 1 - first : Math.max(near(last + 1), 1);
    byId("from2").value = iso(Math.ceil(at[begin] / DAY) * DAY); byId("to2").value = iso(at[end]);
  }
  async function update() {
    const mine = ++turn, value = id => byId(id).value, date = id => Date.parse(value(id));
    const values = [...byId("values").querySelectorAll("input")].filter(b => b.checked).map(b => +b.value);
    byId("values").querySelectorAll("input").forEach(b => { b.disabled = values.length >= MOST && !b.checked; });
    const span = ticksOf(date("from"), date("to")), two = byId("beside").checked;
    const turned = [["from", "to"], ...(two ? [["from2", "to2"]] : [])].filter(([from, to]) => date(to) < date(from));
    const wrong = [...unread, ...turned.map(([from, to]) => `Until ${value(to)} lies before ${value(from)}: what is shown is the ${stepName("tick")} that holds ${value(from)}.`)];
    byId("unread").textContent = wrong.join(" "); byId("unread").hidden = !wrong.length;
    document.querySelectorAll(".second").forEach(e => { e.hidden = !two; });
    shown = { column: +value("column"), with: value("with") === "" ? "" : +value("with"), values, span, every: value("every"),
      spans: two ? [span, ticksOf(date("from2"), date("to2"))] : [span] };
    const kept = new URLSearchParams(fields.map(f => [f, f === "beside" ? +two : value(f)])); kept.set("values", values.join("."));
    try { history.replaceState(null, "", `#${kept}`); } catch { /* from a disk some browsers keep no address */ }
    document.body.dataset.ready = "";
    try {
      await series(); if (mine !== turn) return;
      await bars(); if (mine !== turn) return;
      await pairs();
      if (mine !== turn) return;
      byId("said").textContent = told();
      document.body.dataset.ready = String(mine);
    } catch (error) { byId("said").textContent = error.message; }
  }
  // What is picked, and what it shows: read out once all is drawn, and printed in place of the form.
  function told() {
    const name = column => facts.columns[column].name, { column, values, spans, words } = shown;
    const dates = spans.map(([first, last]) => days(at[first], at[last + 1], " up to and including ")).join(", beside ");
    const over = byId("series").hidden ? "" : `; over time ${shown.every === "start" ? "from the start" : `by ${stepName(shown.every)}`}, ${values.length === 1 ? "1 value" : `${values.length} values`}`;
    return `${name(column)}${shown.with === "" ? "" : `, with ${name(shown.with)}`}, ${dates}${over}. ${words}.`
      + (values.length >= MOST ? " Six values are chosen: take one away to choose another." : "");
  }
  async function begin(found) {
    if (!window.vegaEmbed) return;  // which has been told
    facts = found; at = facts.at.map(a => Date.parse(a)); offsets = [0];
    for (const c of facts.columns) if (c.grid) c.labels = [...Array.from({ length: c.values }, (_, k) => k.toString(4).padStart(c.grid.depth, "0")), ...c.labels];
    for (const [, size] of facts.tables) offsets.push(offsets.at(-1) + size);
    const known = facts.columns.map((c, i) => [i, c.name]).filter(([i]) => find([i]) >= 0);
    if (!known.length) { byId("said").textContent = "This stream publishes no table of one column."; return; }
    byId("pick").hidden = false;
    const asked = new URLSearchParams(location.hash.slice(1)), last = Math.ceil(at.at(-1) / DAY) * DAY;
    byId("whole").textContent = `from ${days(at[0], at.at(-1), " up to and including ")}`;
    option(byId("column"), known);
    // What the address asks for, where it is understood; by hand one writes names. The rest is told.
    const left = [...asked].filter(([name]) => ![...fields, "values"].includes(name)).map(part => part.join("="));
    const read = (name, of) => {
      const text = asked.get(name), found = text == null ? null : of(text);
      if (text && found == null) left.push(`${name}=${text}`);
      return found ?? null;
    };
    const choice = select => text => [...select.options].find(o => o.value === text || o.text === text)?.value;
    const called = text => facts.columns.flatMap((c, i) => c.called?.includes(text) ? [i] : []);
    const columnIn = select => text => choice(select)(text) ??  // of a place the finest grid that has a series
      choice(select)(String(called(text).findLast(i => facts.columns[i].series !== false) ?? called(text)[0]));
    const date = text => /^\d{4}-\d\d-\d\d$/.test(text) && Date.parse(text) ? text : null;
    const given = read("column", columnIn(byId("column")));
    const pair = given == null && facts.map || await clearPair(given == null ? null : +given).catch(() => null);  // told below
    const start = { column: pair?.[0] ?? known[0][0], from: iso(at[0]), to: iso(last) };
    byId("column").value = given ?? start.column;
    const column = () => +byId("column").value, partners = () => {
      const kept = byId("with").value;
      const pairs = known.map(([i, name]) => [i, name, Math.max(find([i, column()]), find([column(), i]))]).filter(([i, , t]) => i !== column() && t >= 0);
      const within = ([, , t]) => facts.pairs.find(p => p[0] === t && p[1] != null)?.[2];
      option(byId("with"), [["", "no other"], ...pairs.filter(p => !within(p))]);
      const group = Object.assign(document.createElement("optgroup"), { label: "within noise and chance" });
      group.append(...pairs.filter(within).map(([i, name]) => new Option(name, i)));
      if (group.children.length) byId("with").append(group);
      byId("with").value = kept; if (byId("with").selectedIndex < 0) byId("with").value = "";
    };
    const lengths = () => {
      const kept = byId("every").value, noise = facts.tables[find([column()])][2];
      const found = Object.keys(facts.steps).filter(s => facts.steps[s][1].some(row => row[noise] != null));
      option(byId("every"), (found.length ? found : ["start"]).map(s => [s, stepName(s)]));
      byId("every").value = kept; if (byId("every").selectedIndex < 0) byId("every").selectedIndex = 0;
    };
    partners(); lengths();
    byId("with").value = read("with", columnIn(byId("with"))) ?? pair?.find(c => c !== column()) ?? "";
    if (byId("with").selectedIndex < 0) byId("with").selectedIndex = Math.min(1, byId("with").options.length - 1);
    for (const name of ["from", "to"]) byId(name).value = read(name, date) ?? start[name];
    for (const name of ["from", "to", "from2", "to2"]) { byId(name).min = iso(at[0]); byId(name).max = iso(last); }
    byId("beside").checked = asked.get("beside") === "1";
    yearBefore();
    for (const name of ["from2", "to2"]) byId(name).value = read(name, date) ?? byId(name).value;
    const every = read("every", choice(byId("every"))), picked = read("values", text => {
      const { labels } = facts.columns[column()], known = found => found.every(v => labels[v] != null) ? found : null;
      return known(text.split(".").map(v => v ? +v : NaN)) ?? known([labels.indexOf(text)]);
    });
    const span = ticksOf(Date.parse(byId("from").value), Date.parse(byId("to").value)), step = values => clearStep(column(), values, span);
    const some = picked ?? (every ? largest(column(), 3) : [3, 1].map(most => largest(column(), most)).find(step) ?? largest(column(), 1));
    valuesOf(column(), some);
    byId("every").value = every ?? step(some) ?? "start";
    if (byId("every").selectedIndex < 0) byId("every").selectedIndex = 0;
    if (left.length) unread = [`Not understood in the address, and left out: ${left.join(", ")}.`];
    byId("column").addEventListener("change", () => { partners(); lengths(); valuesOf(column()); });
    byId("beside").addEventListener("change", yearBefore);
    byId("year").addEventListener("click", () => { yearBefore(); update(); });
    byId("pick").addEventListener("submit", event => event.preventDefault());
    byId("pick").addEventListener("change", () => { unread = []; update(); });
    addEventListener("pointerdown", hush);
    addEventListener("hashchange", () => location.reload());  // written by hand
    return update();
  }
  addEventListener("error", ({ target }) => {
    if (target.src) byId("said").textContent = `${target.getAttribute("src")} could not be loaded. Load the page again.`;
  }, true);
  return { facts: begin, cells: (tick, found) => { loaded[tick] = found; } };
})();
