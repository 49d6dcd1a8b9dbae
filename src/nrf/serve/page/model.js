// What the page says about the served model.
import { byId, counted, element, percent, setText, short } from "/page/dom.js";
import { rendered } from "/page/markdown.js";

function fact(name, text) {
  return element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: text }));
}

export function showModel(model) {
  const { training, calibration, threshold, columns } = model;
  const needed = columns.filter((column) => column.needed);
  setText(byId("served"), `${model.name}: ${counted(needed.length, "column")}, calibrated by ${counted(calibration.n, "normal row")}`);
  const rule = threshold.kind === "false_alarm_rate" ? `flags at most ${percent(threshold.rate)} of normal rows` : `flags ${percent(threshold.rate)} of the rows that set it`;
  const health = model.health ? Object.entries(model.health).filter(([, value]) => typeof value === "number").map(([name, value]) => `${name.replaceAll("_", " ")} ${Number(value.toPrecision(3))}`) : [];
  byId("facts").replaceChildren(
    fact("Rule", threshold.score === null ? threshold.text : rule),
    fact("Threshold", threshold.score === null ? "none" : short(threshold.score)),
    fact("Calibration", counted(calibration.n, "normal row")),
    fact("Trained", [training.rows ? counted(training.rows, "row") : "", day(training.created), training.field ? `field ${training.field}` : ""].filter(Boolean).join(", ")),
    ...(health.length ? [fact("Health", health.join(", "))] : []),
    fact("Digest", String(model.digest).slice(0, 12)));
  byId("column-list").replaceChildren(...columns.map((column) => element("tr", { className: column.needed ? "" : "soft" },
    element("th", { scope: "row", textContent: column.name }), element("td", { textContent: column.kind }), element("td", { textContent: column.found }))));
  setText(byId("columns").querySelector("summary"), `Columns (${needed.length}${needed.length < columns.length ? ` of ${columns.length}` : ""})`);
  const names = needed.slice(0, 8).map((column) => column.name).join(", ");
  setText(byId("wanted"), `Columns, in any order: ${names}${needed.length > 8 ? ` and ${needed.length - 8} more` : ""}`);
  byId("card").hidden = !model.card;
  byId("card-text").replaceChildren(rendered(model.card ?? ""));
}

function day(created) {
  const date = new Date(created ?? NaN);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 10);
}
