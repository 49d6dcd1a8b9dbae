// The view of runs: polls the listing, and the curves of the runs that are chosen.
import { lineChart } from "/page/chart.js";
import { byId, element, setText, short } from "/page/dom.js";

const POLL = 2000, COLOURS = 6;
const list = byId("list"), charts = byId("charts"), status = byId("status"), pictures = byId("pictures");
const chosen = new Set(), colours = new Map(), loaded = new Map();
let began = false;

async function json(address) {
  const answer = await fetch(address).catch(() => {
    throw new Error("`nrf runs` does not answer; is it still running? This page goes on asking.");
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ? body.error.message : answer.statusText);
  return body;
}

const address = (name) => `/runs/${encodeURIComponent(name)}`;
const signature = (run) => JSON.stringify([run.step, run.state, run.iterations]);

function row(run) {
  const box = element("input", { type: "checkbox", checked: chosen.has(run.name) });
  box.setAttribute("aria-label", `Show ${run.name}`);
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(run.name); else chosen.delete(run.name);
    refresh();
  });
  const steps = run.iterations ? `${run.step} of ${run.iterations}` : String(run.step);
  const made = element("tr", {}, element("td", {}, box), element("th", { scope: "row", textContent: run.name }),
    element("td", { textContent: run.preset ?? "–" }), element("td", { className: "number", textContent: steps }),
    element("td", { textContent: run.error ? `${run.state}: ${run.error}` : run.state }));
  made.dataset.name = run.name;
  made.dataset.seen = signature(run);
  return made;
}

// Rows that did not change stay, so that the focus does too.
function showList(runs) {
  const old = new Map([...list.rows].map((r) => [r.dataset.name, r]));
  const focused = document.activeElement?.closest("tr")?.dataset.name;
  const rows = runs.map((run) => (old.get(run.name)?.dataset.seen === signature(run) ? old.get(run.name) : row(run)));
  if (rows.length !== list.rows.length || rows.some((r, i) => list.rows[i] !== r)) {
    list.replaceChildren(...rows);
    if (focused) rows.find((r) => r.dataset.name === focused)?.querySelector("input").focus();
  }
}

const isHealth = (name) => /^(watched|samples)_/.test(name);
const words = (name) => name.replaceAll("_", " ");

function chart(name, runs) {
  const series = runs.filter((run) => run.metrics[name])
    .map((run) => ({ name: run.name, colour: colours.get(run.name), points: run.metrics[name] }));
  const key = element("ul", { className: "key" }, ...series.map((s) =>
    element("li", { className: `c${s.colour}` }, s.name, " ", element("span", { className: "last", textContent: short(s.points[s.points.length - 1][1]) }))));
  return element("section", { className: "card" }, element("h3", { textContent: words(name) }), lineChart(words(name), series), key);
}

function showCharts(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((n) => n !== "epoch");
  const health = names.filter(isHealth), others = names.filter((name) => !isHealth(name));
  charts.replaceChildren(...others.map((name) => chart(name, runs)));
  if (!others.length) charts.append(element("p", { textContent: runs.length ? "No line of metrics yet." : "No run is chosen." }));
  byId("healthy").hidden = !health.length;
  byId("health-charts").replaceChildren(...health.map((name) => chart(name, runs)));
  showDifferences(runs);
  showSamples(runs.filter((run) => run.samples.length));
}

function showDifferences(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const text = (run, name) => (name in run.settings ? JSON.stringify(run.settings[name]) : "–");
  const different = names.filter((name) => new Set(runs.map((run) => text(run, name))).size > 1);
  byId("compared").hidden = !different.length;
  const table = byId("differences");
  table.tHead.replaceChildren(element("tr", {}, element("th", { scope: "col", textContent: "Setting" }),
    ...runs.map((run) => element("th", { scope: "col", textContent: run.name }))));
  table.tBodies[0].replaceChildren(...different.map((name) => element("tr", {}, element("th", { scope: "row", textContent: name }),
    ...runs.map((run) => element("td", { textContent: text(run, name) })))));
}

// The figures of runs that are shown already stay, so that a slider keeps the focus; at its end it follows the run.
function showSamples(runs) {
  byId("sampled").hidden = !runs.length;
  const old = new Map([...pictures.children].map((figure) => [figure.dataset.name, figure]));
  for (const [name, figure] of old) if (!runs.some((run) => run.name === name)) figure.remove();
  for (const run of runs) {
    const figure = old.get(run.name) ?? pictures.appendChild(newFigure(run.name));
    const slider = figure.querySelector("input"), last = run.samples.length - 1, atEnd = slider.value === slider.max;
    figure.samples = run.samples;
    slider.max = last;
    slider.hidden = last < 1;
    if (atEnd) slider.value = last;
    showPicture(figure);
  }
}

function newFigure(name) {
  const slider = element("input", { type: "range", min: 0, max: 0, value: 0, aria: { label: `Samples of ${name}, from the first to the latest` } });
  const figure = element("figure", { className: "card", data: { name } }, element("figcaption"), element("img"), slider);
  slider.addEventListener("input", () => showPicture(figure));
  return figure;
}

function showPicture(figure) {
  const name = figure.dataset.name, slider = figure.querySelector("input"), file = figure.samples[slider.value];
  const image = figure.querySelector("img"), source = `${address(name)}/samples/${encodeURIComponent(file)}`;
  if (image.getAttribute("src") === source) return;
  Object.assign(image, { src: source, alt: `Samples of ${name}, ${file}` });
  setText(figure.querySelector("figcaption"), `${name}, ${file}`);
  slider.setAttribute("aria-valuetext", file);
}

let shown = "";
async function refresh() {
  try {
    const { runs } = await json("/runs.json");
    for (const run of runs) if (!colours.has(run.name)) colours.set(run.name, colours.size % COLOURS);
    if (!began) { runs.slice(0, COLOURS).forEach((run) => chosen.add(run.name)); began = true; }
    showList(runs);
    const wanted = runs.filter((run) => chosen.has(run.name));
    for (const run of wanted) {
      if (loaded.get(run.name)?.seen !== signature(run)) {
        loaded.set(run.name, { seen: signature(run), run: await json(`${address(run.name)}.json`) });
      }
    }
    const now = wanted.map((run) => run.name + signature(run)).join();
    if (now !== shown || !charts.children.length) { showCharts(wanted.map((run) => loaded.get(run.name).run)); shown = now; }
    const training = runs.filter((run) => run.state === "training").length;
    const text = runs.length ? `${runs.length} runs, ${training} training` : "No run folder here yet; `nrf train` makes one.";
    setText(status, text);
  } catch (error) {
    setText(status, `The runs cannot be read: ${error.message}`);
  }
}

async function poll() {
  await refresh();
  setTimeout(poll, POLL);
}
poll();
