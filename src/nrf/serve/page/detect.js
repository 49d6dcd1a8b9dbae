// The page of `nrf serve`: choose a model, give it rows, move the threshold, ask why.
import { Histogram } from "/page/chart.js";
import { CsvTable, fileText, written } from "/page/csv.js";
import { byId, count, counted, duration, element, percent, setText, short } from "/page/dom.js";
import { watchDrift } from "/page/drift.js";
import { explained, said } from "/page/explanation.js";
import { showModel } from "/page/model.js";
import { Calibration, Scored, bins, drawn, outcome } from "/page/rates.js";
import { RowTable } from "/page/rows.js";
import { Job } from "/page/scoring.js";
import { Service } from "/page/service.js";

const BINS = 60;
const service = new Service(askToken);
const table = new RowTable(explain);
let model = null, source = null, job = null; // what is served, what was given, what is on its way
let result = null; // {csv, scored, calibration, rule, histogram, extent, explanations}

const say = (text) => setText(byId("status"), text);

// --- the token

function askToken(why) {
  const form = byId("token"), field = byId("token-text");
  form.hidden = false;
  setText(byId("token-why"), why);
  field.value = "";
  field.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.hidden = true;
      resolve(field.value.trim());
    }, { once: true });
  });
}

// --- what went wrong

function showProblem(error, again, where = "") {
  const columns = Object.entries(error.columns ?? {});
  const parts = [element("p", { textContent: where + (columns.length ? error.message.split("\n")[0] : error.message) })];
  if (columns.length) {
    parts.push(element("ul", {}, ...columns.map(([name, wrong]) => element("li", {}, element("strong", { textContent: name }), `: ${wrong}`))));
  }
  if (again) {
    const button = element("button", { type: "button", textContent: "Try again" });
    button.addEventListener("click", () => { clearProblem(); again(); });
    parts.push(button);
  }
  byId("problem").replaceChildren(...parts);
}

const clearProblem = () => byId("problem").replaceChildren();

// --- the model

async function start() {
  try {
    const { models } = await service.ask("/models");
    const names = models.map((each) => each.name), asked = new URLSearchParams(location.search).get("model");
    if (!names.length) throw new Error("No model is served.");
    const first = [asked, "default", names[0]].find((name) => names.includes(name));
    byId("model").replaceChildren(...names.map((name) => element("option", { value: name, textContent: name, selected: name === first })));
    byId("choice").hidden = names.length === 1;
    await open(first);
  } catch (error) {
    setText(byId("served"), "The models cannot be read.");
    showProblem(error, start);
  }
}

async function open(name) {
  job?.stop();
  byId("result").hidden = true;
  service.model = name;
  const found = await service.ask("/model");
  if (service.model !== name) return; // another one was chosen meanwhile
  model = found;
  showModel(model);
  say(`Model ${name} is shown.`);
  watchDrift(service);
  if (source) await score(source.csv, source.name);
}

// --- rows

async function take(file) {
  clearProblem();
  try {
    await score(new CsvTable(await fileText(file)), file.name);
  } catch (error) {
    showProblem(error);
  }
}

async function score(csv, name) {
  clearProblem();
  job?.stop();
  if (!csv.length) return showProblem(new Error(`${name} has ${csv.header.length ? "a header, but no rows" : "nothing in it"}; give a CSV with the column names in the first line.`));
  source = { csv, name };
  if (!model) return undefined;
  job = new Job(service, csv, model.limits);
  return go(job, name);
}

async function go(now, name) {
  const total = count(now.csv.length), area = byId("work"), bar = byId("bar");
  area.hidden = false;
  byId("result").setAttribute("aria-busy", "true");
  bar.removeAttribute("value");
  setText(byId("working"), `Scoring ${counted(now.csv.length, "row")}`);
  try {
    await now.run(() => {
      bar.value = now.done / now.csv.length;
      setText(byId("working"), `${count(now.done)} of ${total} rows, ${duration(now.secondsLeft)} left`);
      say(`${percent(now.done / now.csv.length)} of the rows are scored`);
    }, (seconds) => setText(byId("working"), `The service is busy; trying again in ${duration(seconds)}`));
    if (now === job) show(now, name);
  } catch (error) {
    if (error.name !== "AbortError") showProblem(error, error.columns ? null : () => go(now, name), now.done ? `${count(now.done)} of ${total} rows are scored; counted from there: ` : "");
    else if (now === job) say("Stopped.");
  } finally {
    if (now === job) area.hidden = true;
    byId("result").removeAttribute("aria-busy");
  }
}

// --- results

function ownRule() {
  const { kind, rate, score: at } = model.threshold;
  return kind === "false_alarm_rate" ? { rate } : { score: at ?? -Infinity };
}

function show({ csv, scores, pValues }, name) {
  const scored = new Scored(scores, pValues), calibration = new Calibration(model.calibration);
  if (!scored.n) return showProblem(new Error("No row has a finite score."));
  const extent = drawn(scored, calibration);
  byId("result").hidden = false;
  const parts = { rows: bins(scored.sorted, ...extent, BINS), calibration: bins(calibration.scores, ...extent, BINS) };
  result = { csv, name, scored, calibration, extent, explanations: new Map(), histogram: new Histogram(byId("histogram"), parts, extent) };
  Object.assign(byId("threshold"), { min: extent[0], max: extent[1], step: (extent[1] - extent[0]) / 500 });
  const without = scores.length - scored.n;
  setText(byId("about-file"), `${name}: ${counted(scores.length, "row")}${without ? `, ${count(without)} of them without a finite score` : ""}`);
  byId("explanation").replaceChildren(element("p", { className: "soft", textContent: "Choose a row to see which of its values make it unusual, and what would make it normal." }));
  table.open(csv, scored, model.columns.map((column) => column.name));
  decide(ownRule());
  byId("scores-title").focus({ preventScroll: true });
  byId("result").scrollIntoView({ block: "nearest" });
  watchDrift(service);
  return undefined;
}

// Take a rule, {rate} or {score}; all that depends on it is redrawn. `from` is the control that is being moved.
function decide(rule, from = null) {
  const { scored, calibration, histogram, extent } = result, found = outcome(scored, calibration, rule);
  result.rule = rule;
  result.found = found;
  histogram.move(found.threshold);
  const at = found.threshold === -Infinity ? "none" : short(found.threshold);
  const slider = byId("threshold");
  if (from !== slider) slider.value = Math.max(extent[0], found.threshold);
  if (from !== byId("rate")) byId("rate").value = Number((100 * ("rate" in rule ? rule.rate : found.rate)).toPrecision(3));
  slider.setAttribute("aria-valuetext", `${at}; ${count(found.flagged)} of ${count(scored.n)} rows flagged`);
  setText(byId("at"), at);
  setText(byId("flagged"), `${count(found.flagged)} of ${count(scored.n)}`);
  const expected = found.expected >= 10 ? count(Math.round(found.expected)) : String(Number(found.expected.toPrecision(2)));
  bound("expected", expected);
  bound("fdr", found.flagged ? percent(found.fdr) : null);
  setText(byId("rate-note"), note(rule, found));
  histogram.svg.setAttribute("aria-label", `Histogram of ${count(scored.n)} scores from ${short(scored.sorted[0])} to ${short(scored.sorted[scored.n - 1])}, with those of ${count(calibration.n)} normal rows behind it; threshold ${at}, ${count(found.flagged)} rows are below it`);
  table.update(found.flagged);
  announce(`${count(found.flagged)} of ${counted(scored.n, "row")} flagged, at most ${expected} false alarms to expect`);
}

function bound(id, text) {
  byId(id).replaceChildren(...(text === null ? ["–"] : [element("small", { textContent: "at most " }), text]));
}

function note(rule, found) {
  const { calibration } = result;
  const lowest = percent(Math.ceil(1e4 * calibration.lowestRate) / 1e4);
  if (found.rate < calibration.lowestRate) return `${counted(calibration.n, "calibration row")} cannot keep this rate, only ${lowest} or more: nothing is flagged.`;
  return `By ${counted(calibration.n, "calibration row")}, at most ${percent(found.rate)} of normal rows are flagged. The numbers above count as if every row here were normal.`;
}

let later = 0;
function announce(text) {
  clearTimeout(later);
  later = setTimeout(() => say(text), 600);
}

async function explain(row) {
  const place = byId("explanation"), mine = result;
  place.dataset.row = row;
  setText(byId("why-title"), `Why row ${count(row + 1)} is unusual`);
  try {
    let found = mine.explanations.get(row);
    if (!found) {
      place.classList.add("waiting");
      say(`Row ${count(row + 1)} is being explained`);
      found = (await service.ask("/explain", { body: mine.csv.part(row, row + 1) })).explanations[0];
      mine.explanations.set(row, found);
    }
    if (mine !== result || place.dataset.row !== String(row)) return;
    place.replaceChildren(explained(row, found));
    say(said(row, found));
  } catch (error) {
    if (mine !== result || place.dataset.row !== String(row)) return;
    const again = element("button", { type: "button", textContent: "Try again" });
    again.addEventListener("click", () => explain(row));
    place.replaceChildren(element("p", { className: "alarm", textContent: error.message }), again);
    say(error.message);
  } finally {
    place.classList.remove("waiting");
  }
  // Where the explanation stands below the rows, it comes into view.
  const why = byId("why");
  if (why.getBoundingClientRect().top > innerHeight - 120) {
    why.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
}

function download() {
  const { scored, found, csv, name } = result, flagged = new Set(scored.order.slice(0, found.flagged));
  const rows = Array.from({ length: csv.length }, (_, i) => [i + 1, scored.scores[i], scored.pValues[i], flagged.has(i) ? 1 : 0]);
  const text = written([["row", "score", "p_value", "anomaly"], ...rows.map((row) => row.map((v) => (Number.isNaN(v) ? "" : v)))]);
  const link = byId("download");
  if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name.replace(/\.(csv|tsv|txt)(\.gz)?$/i, "")}-scores.csv`;
}

// --- what the user does

async function change(name) {
  clearProblem();
  try {
    await open(name);
  } catch (error) {
    showProblem(error, () => change(name));
  }
}

byId("model").addEventListener("change", (event) => change(event.target.value));
byId("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) take(file);
  event.target.value = ""; // the same file can be chosen again
});
byId("paste").addEventListener("click", () => {
  const form = byId("pasted");
  form.hidden = !form.hidden;
  byId("paste").setAttribute("aria-expanded", String(!form.hidden));
  if (!form.hidden) byId("text").focus();
});
byId("pasted").addEventListener("submit", (event) => {
  event.preventDefault();
  score(new CsvTable(byId("text").value), "pasted rows");
});
byId("stop").addEventListener("click", () => job?.stop());
const drop = byId("rows");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault()); // a file beside the mark does not replace the page
drop.addEventListener("drop", (event) => {
  const [file] = event.dataTransfer.files, text = event.dataTransfer.getData("text/plain");
  if (file) take(file);
  else if (text) score(new CsvTable(text), "dropped rows");
});
byId("threshold").addEventListener("input", (event) => decide({ score: event.target.valueAsNumber }, event.target));
byId("rate").addEventListener("input", (event) => {
  const rate = event.target.valueAsNumber / 100;
  if (rate >= 0 && rate <= 1) decide({ rate }, event.target);
});
byId("own").addEventListener("click", () => decide(ownRule()));
byId("fdr5").addEventListener("click", () => decide({ rate: result.scored.cutoff(0.05) }));
byId("download").addEventListener("click", download);
const histogram = byId("histogram");
for (const kind of ["pointerdown", "pointermove"]) {
  histogram.addEventListener(kind, (event) => {
    if (!result || !(event.buttons & 1)) return;
    if (kind === "pointerdown") histogram.setPointerCapture(event.pointerId);
    decide({ score: result.histogram.scoreAt(event.clientX) });
  });
}
new ResizeObserver(() => { if (result && !byId("result").hidden) result.histogram.draw(); }).observe(histogram);
start();
