// The drift monitor, where the service has one: evidence over time, and the columns that moved.
import { lineChart } from "/page/chart.js";
import { byId, count, element, percent, short } from "/page/dom.js";

const EVERY = 15000;
let timer = 0, turn = 0;

function drawn(found) {
  const limit = -Math.log10(found.level);
  const moved = found.columns.filter((column) => column.alarm);
  const says = found.alarm
    ? "The rows that were scored here differ from the training rows: scores and false-alarm rates may no longer hold. Look into the columns below, and fit again if the change is to stay."
    : "The rows that were scored here still look like the training rows.";
  const parts = [element("p", { className: found.alarm ? "alarm" : "" }, element("strong", { textContent: found.alarm ? "Drift. " : "No drift. " }), says)];
  if (found.history.length) {
    const points = found.history.map(([n, evidence]) => [n, evidence]);
    parts.push(element("figure", { className: "chart" },
      lineChart("Evidence of drift, log10 e", [{ name: "evidence", colour: 0, points }], { over: "rows", limit: { value: limit, text: "alarm" } }),
      element("figcaption", { className: "soft", textContent: `Evidence (log10 of the e-value) over ${count(found.n)} rows; now ${short(found.e_value)}, at most ${short(found.peak)}. Without drift it passes the line with a probability of ${percent(found.level)} at most.` })));
  }
  if (moved.length) {
    parts.push(element("div", {}, element("h3", { textContent: "Columns that moved" }), element("ul", {}, ...moved.map((column) =>
      element("li", {}, element("strong", { textContent: column.name }), ` e-value ${short(column.e_value)}`)))));
  }
  return parts;
}

// Ask now, and again from time to time; nothing is shown where the service has no monitor.
export async function watchDrift(service) {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    const found = await service.ask("/drift");
    if (mine !== turn || !Array.isArray(found.history)) return;
    const seen = JSON.stringify(found), place = byId("drift-content");
    if (place.dataset.seen !== seen) {
      place.dataset.seen = seen;
      place.replaceChildren(...drawn(found));
    }
    byId("drift").hidden = false;
    timer = setTimeout(() => watchDrift(service), EVERY);
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 0 && !byId("drift").hidden) timer = setTimeout(() => watchDrift(service), EVERY);
    else byId("drift").hidden = true;
  }
}
