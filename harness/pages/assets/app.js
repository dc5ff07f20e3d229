// Search, reading out of drawings, and any two runs side by side. Every page reads without it.
"use strict";
const FUSE = { data: {}, waits: {}, fill(name, value) { this.data[name] = value; (this.waits[name] || []).forEach((go) => go(value)); } };
const UP = document.currentScript.dataset.up;

// Scripts instead of fetched files: a browser loads them also from a folder on the disk.
function load(name, file) {
  if (name in FUSE.data) return Promise.resolve(FUSE.data[name]);
  return new Promise((go, fail) => {
    if (FUSE.waits[name]) return FUSE.waits[name].push(go);
    FUSE.waits[name] = [go];
    const script = document.createElement("script");
    script.src = UP + file;
    script.onerror = () => { delete FUSE.waits[name]; fail(new Error(file)); };
    document.head.append(script);
  });
}
const el = (tag, props = {}, ...children) => { const node = Object.assign(document.createElement(tag), props); node.append(...children); return node; };
const percent = (ratio) => (ratio >= 0 ? "+" : "\u2212") + (Math.abs(ratio) * 100).toFixed(1) + "\u202f%";

// Search.
const box = document.getElementById("search"), found = document.getElementById("found");
let at = -1;
function matches(text, words) { const low = text.toLowerCase(); return words.every((word) => low.includes(word)); }
const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
async function look() {
  const words = wordsOf(box.value);
  narrow(words);
  if (!words.length) return close();
  const [cases, devices] = await Promise.all([load("cases", "data/cases.js"), load("runs", "data/runs.js")]);
  if (wordsOf(box.value).join() !== words.join()) return;
  const hits = [];
  for (const [id, page, word] of cases) {
    if (matches(id, words)) hits.push([id, "case/" + page + ".html", word]);
    if (hits.length === 40) break;
  }
  for (const device of devices) for (const run of device.runs.slice().reverse()) {
    if (hits.length < 50 && matches(run[2] + " " + run[3] + " " + run[0] + " " + run[4], words)) hits.push(["Run of " + run[2] + ", " + run[4] + " " + run[3], "run/" + run[1] + ".html", device.shown]);
  }
  found.replaceChildren(...hits.map(([name, page, note], i) => {
    const link = el("a", { href: UP + page, tabIndex: -1 }, el("span", { className: "id" }, name));
    if (note) link.append(" ", el("span", { className: "dim" }, note));
    const item = el("li", { id: "hit" + i }, link);
    item.setAttribute("role", "option");
    return item;
  }));
  if (!hits.length) found.append(el("li", { className: "dim" }, "Nothing has all of these words."));
  found.hidden = false;
  at = -1;
}
function close() { found.hidden = true; at = -1; box.removeAttribute("aria-activedescendant"); }
function step(by) {
  const items = [...found.querySelectorAll("li[role=option]")];
  if (!items.length) return;
  at = (at + by + items.length + (at < 0 && by < 0 ? 1 : 0)) % items.length;
  items.forEach((item, i) => item.setAttribute("aria-selected", i === at));
  items[at].scrollIntoView({ block: "nearest" });
  box.setAttribute("aria-activedescendant", items[at].id);
}
box.addEventListener("input", look);
box.addEventListener("focus", look);
box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") { event.preventDefault(); step(1); }
  else if (event.key === "ArrowUp") { event.preventDefault(); step(-1); }
  else if (event.key === "Escape") { close(); box.blur(); }
  else if (event.key === "Enter" && at >= 0) { event.preventDefault(); found.querySelectorAll("li[role=option] a")[at].click(); }
});
document.addEventListener("click", (event) => { if (!event.target.closest(".search")) close(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); box.focus(); box.select(); }
});

// The list of all cases is narrowed by the same words.
const suites = [...document.querySelectorAll("details.suite")], wasOpen = suites.map((suite) => suite.open);
function narrow(words) {
  if (!suites.length) return;
  let any = false;
  suites.forEach((suite, i) => {
    let some = false;
    for (const item of suite.querySelectorAll("li")) {
      const hit = matches(item.firstElementChild.textContent, words);
      item.hidden = !hit;
      some ||= hit;
    }
    suite.hidden = !some;
    suite.open = words.length ? some : wasOpen[i];
    any ||= some;
  });
  document.getElementById("nothing").hidden = any;
}
if (suites.length) {
  const query = new URLSearchParams(location.search).get("q");
  if (query) { box.value = query; narrow(wordsOf(query)); }
}

for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", async () => {
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
});

// A drawing read out, by pointer or by keys.
for (const figure of document.querySelectorAll("figure.plot[tabindex]")) {
  const holder = figure.querySelector("script[type='application/json']");
  let data, places, index = -1;
  const read = () => {
    if (data) return;
    data = JSON.parse(holder.textContent);
    let sum = 0;
    data.v = data.v.map((step) => +((sum += step) / 10 ** data.power).toPrecision(4));
    places = data.x.flatMap(([from, count]) => Array.from({ length: count }, (_, i) => from + i));
  };
  const show = async (i) => {
    read();
    index = Math.max(0, Math.min(places.length - 1, i));
    const devices = await load("runs", "data/runs.js");
    const device = devices.find((device) => device.name === data.device);
    const run = device.runs[device.axes[data.column][places[index]]];
    const value = data.v[index];
    const ends = data.lo ? ` [${+(value * (1 + data.lo[index] / 1000)).toPrecision(4)}, ${+(value * (1 + data.hi[index] / 1000)).toPrecision(4)}]` : "";
    const code = data.k.includes(places[index]) ? ", other kernel text" : "";
    figure.querySelector("output").replaceChildren(el("b", {}, `${value} ${data.unit}`), ends + " ", el("a", { href: UP + "run/" + run[1] + ".html", tabIndex: -1 }, run[2]), ` ${run[4]} ${run[3]}${run[5] ? " " + run[5].slice(0, 12) : ""}${code}`);
    for (const svg of figure.querySelectorAll("svg")) {
      const [from, to] = [+svg.dataset.from, +svg.dataset.to];
      const x = from + (to - from) * places[index] / Math.max(1, data.n - 1);
      let line = svg.querySelector(".cursor");
      if (!line) { line = document.createElementNS("http://www.w3.org/2000/svg", "path"); line.setAttribute("class", "cursor"); svg.append(line); }
      line.setAttribute("d", `M${x} 36V${svg.viewBox.baseVal.height - 44}`);
    }
  };
  const hide = () => { index = -1; figure.querySelectorAll(".cursor").forEach((line) => line.remove()); };
  figure.addEventListener("pointermove", (event) => {
    const svg = event.target.closest("svg");
    if (!svg) return;
    read();
    const rect = svg.getBoundingClientRect(), [from, to] = [+svg.dataset.from, +svg.dataset.to];
    const x = (event.clientX - rect.left) / rect.width * svg.viewBox.baseVal.width;
    const place = (x - from) / (to - from) * Math.max(1, data.n - 1);
    let best = 0;
    places.forEach((p, i) => { if (Math.abs(p - place) < Math.abs(places[best] - place)) best = i; });
    if (best !== index) show(best);
  });
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key] * (event.shiftKey ? 10 : 1);
    if (by) { event.preventDefault(); read(); show(index < 0 ? places.length - 1 : index + by); }
  });
}

// Any two runs side by side.
const pick = document.getElementById("pick");
if (pick) (async () => {
  const devices = await load("runs", "data/runs.js");
  const [a, b] = [document.getElementById("a"), document.getElementById("b")];
  for (const select of [a, b]) for (const device of devices) {
    select.append(Object.assign(el("optgroup", {}, ...device.runs.slice().reverse().map((run) => el("option", { value: run[0] }, `${run[2]}  ${run[4]}  ${run[3]}`))), { label: device.shown }));
  }
  const asked = new URLSearchParams(location.search);
  const of = (id) => devices.flatMap((device) => device.runs.map((run) => [device, run])).find(([, run]) => run[0] === id);
  const device = (of(asked.get("b")) || [devices[0]])[0];
  if (!device) return document.getElementById("compared").append("No run is recorded.");
  b.value = of(asked.get("b")) ? asked.get("b") : device.runs.at(-1)[0];
  a.value = of(asked.get("a")) ? asked.get("a") : (device.runs.at(-2) || device.runs.at(-1))[0];
  const go = async () => {
    const [one, two] = [of(a.value), of(b.value)];
    history.replaceState(null, "", "?" + new URLSearchParams({ a: a.value, b: b.value }));
    const [cases, before, after] = await Promise.all([load("cases", "data/cases.js"), ...[one, two].map(([, run]) => load("run " + run[0], "data/" + run[1] + ".js"))]);
    side(cases, one, two, before, after);
  };
  pick.addEventListener("change", go);
  go();
})();

function side(cases, [deviceA, runA], [deviceB, runB], before, after) {
  const out = document.getElementById("compared");
  out.replaceChildren();
  const linkTo = (data, run) => el("a", { href: data.page }, run[2]);
  const headed = (name, note) => out.append(el("h2", {}, name, note ? el("span", { className: "dim" }, " " + note) : ""));
  const facts = el("table", {}, el("tbody", {}, ...[["Run", linkTo(before, runA), linkTo(after, runB)], ["Device", deviceA.shown, deviceB.shown], ["Command", runA[4], runB[4]], ["Commit", runA[3], runB[3]], ["GPUs", runA[5] || "not recorded", runB[5] || "not recorded"]].map(([name, x, y]) => el("tr", {}, el("th", {}, name), el("td", { className: "long" }, x), el("td", { className: "long" }, y)))));
  out.append(el("div", { className: "scroll" }, facts));
  if (deviceA !== deviceB) out.append(el("p", { className: "note" }, "Two kinds of devices: outcomes can be compared, figures cannot."));
  for (const data of [before, after]) if (!data.rows) {
    let place = data.from;
    const [step, word, value, low, high, kernel] = data.columns.map((column) => (Array.isArray(column) ? column : Array(data.count).fill(column)));
    data.rows = step.map((by, i) => (value[i] ? [place += by, word[i], value[i], low[i], high[i], kernel[i]] : [place += by, word[i]]));
  }
  const old = new Map(before.rows.map((row) => [row[0], row]));
  const rows = after.rows.map((row) => [row, old.get(row[0])]);
  const both = rows.filter(([, x]) => x);
  const caseLink = ([row]) => el("a", { className: "id", href: "case/" + cases[row[0]][1] + ".html" }, cases[row[0]][0]);
  const tone = (word) => ({ pass: "good", skip: "dim", quarantined: "dim", flaky: "warn", infra: "warn" }[word.split(".")[0]] || "bad");
  const tag = (word) => el("span", { className: "tag " + tone(word) }, word);
  const table = (name, note, heads, list, line) => {
    headed(name, note);
    if (!list.length) return out.append(el("p", { className: "empty" }, "None."));
    const most = 300;
    out.append(el("div", { className: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { className: i ? "right" : "" }, head)))), el("tbody", {}, ...list.slice(0, most).map((entry) => el("tr", {}, ...line(entry).map((cell, i) => el("td", { className: i ? "right num" : "long" }, cell))))))));
    if (list.length > most) out.append(el("p", { className: "dim" }, `and ${list.length - most} more`));
  };
  const word = (data, row) => data.words[row[1]];
  table("Other outcomes", "", ["Case", "Earlier", "Later"], both.filter(([y, x]) => word(after, y) !== word(before, x)), ([y, x]) => [caseLink([y]), tag(word(before, x)), tag(word(after, y))]);
  if (deviceA === deviceB) {
    const timed = both.filter(([y, x]) => y.length > 2 && x.length > 2 && x[2] > 0);
    const ratio = ([y, x]) => y[2] / x[2] - 1;
    // Where there is an interval, it must not touch the other one; a count has none, and differs if it differs.
    const low = (row) => row[2] * (1 + row[3] / 1000), high = (row) => row[2] * (1 + row[4] / 1000);
    const exact = (row) => row[3] === 0 && row[4] === 0;
    const apart = ([y, x]) => (exact(x) && exact(y) ? y[2] !== x[2] : Math.abs(ratio([y, x])) > 0.02 && (low(y) > high(x) || high(y) < low(x)));
    const moved = timed.filter(apart).sort((p, q) => Math.abs(ratio(q)) - Math.abs(ratio(p)));
    const line = ([y, x]) => [caseLink([y]), el("span", { className: x[5] && x[5] === y[5] ? "dim" : (y[2] > x[2]) === after.less ? "bad" : "good" }, percent(ratio([y, x]))), `${x[2]} ${before.unit}`, `${y[2]} ${after.unit}`, x[5] && y[5] ? (x[5] === y[5] ? "same" : "other") : ""];
    const mean = timed.length ? Math.exp(timed.reduce((sum, pair) => sum + Math.log(1 + ratio(pair)), 0) / timed.length) - 1 : 0;
    const heads = ["Case", "Change", "Earlier", "Later", "Kernel text"];
    table(after.figure + ", for the worse", timed.length ? `${timed.length} cases in both, together ${percent(mean)}` : "", heads, moved.filter((pair) => (ratio(pair) > 0) === after.less), line);
    table(after.figure + ", for the better", "", heads, moved.filter((pair) => (ratio(pair) < 0) === after.less), line);
    table("Other kernel text", "and no other figure", ["Case"], timed.filter((pair) => pair[0][5] && pair[1][5] && pair[0][5] !== pair[1][5] && !apart(pair)), ([y]) => [caseLink([y])]);
  }
  const now = new Set(after.rows.map((row) => row[0]));
  table("Only in the later one", "", ["Case", "Outcome"], rows.filter(([, x]) => !x), ([y]) => [caseLink([y]), tag(word(after, y))]);
  table("Only in the earlier one", "", ["Case", "Outcome"], before.rows.filter((row) => !now.has(row[0])).map((row) => [row]), ([x]) => [caseLink([x]), tag(word(before, x))]);
}
