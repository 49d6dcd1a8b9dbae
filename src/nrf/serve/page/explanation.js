// One explained row: contributions as bars in the user's own values, the counterfactual, the nearest training rows.
import { bar } from "/page/chart.js";
import { count, counted, element, percent, short, shown } from "/page/dom.js";

const SHOWN = 10;

function contributions(parts) {
  const sizes = parts.map((part) => part.contribution ?? 0), least = Math.min(0, ...sizes), most = Math.max(0, ...sizes);
  const line = (part) => element("tr", {},
    element("th", { scope: "row", textContent: part.column }),
    element("td", {}, shown(part.value), ...(part.reason ? [element("span", { className: "reason", textContent: part.reason })] : [])),
    element("td", { className: "soft", textContent: part.typical === null ? "–" : shown(part.typical) }),
    element("td", { className: "number amount" }, bar(part.contribution ?? 0, least, most), element("span", { textContent: short(part.contribution) })));
  const telling = parts.filter((part) => Math.abs(part.contribution ?? 0) > 1e-6 * (most - least)).slice(0, SHOWN);
  const others = parts.filter((part) => !telling.includes(part));
  const body = element("tbody", {}, ...telling.map(line));
  const table = element("table", { className: "parts" },
    element("caption", { className: "unseen", textContent: "Columns by how much the score would rise with the typical value" }),
    element("thead", {}, element("tr", {}, ...["Column", "Here", "Typical", "Lowers the score by"].map((name, i) =>
      element("th", { scope: "col", className: i === 3 ? "number" : "", textContent: name })))), body);
  const made = [table];
  if (others.length) {
    const more = element("button", { type: "button", textContent: `Show the other ${counted(others.length, "column")}` });
    more.addEventListener("click", () => {
      body.append(...others.map(line));
      more.remove();
      body.rows[telling.length].tabIndex = -1;
      body.rows[telling.length].focus();
    });
    made.push(element("p", { className: "buttons" }, more));
  }
  return made;
}

function counterfactual(found) {
  if (!found) return [];
  if (!found.changes.length) return [element("p", { textContent: "By the model’s own rule the row is normal as it is: nothing would have to change." })];
  const changes = found.changes.map((change) => element("li", {}, element("strong", { textContent: change.column }), " ",
    element("span", { className: "from", textContent: shown(change.from) }), element("span", { className: "unseen", textContent: " to " }),
    element("span", { textContent: " → ", aria: { hidden: "true" } }), element("span", { className: "to", textContent: shown(change.to) })));
  const says = found.reached ? `With ${found.changes.length === 1 ? "this change" : "these changes"} it would pass, with a score of ${short(found.score)}:`
    : `It would be less unusual, but not pass, with a score of ${short(found.score)}:`;
  return [element("h3", { textContent: "What would make it normal" }), element("p", { textContent: says }), element("ul", { className: "changes" }, ...changes)];
}

function nearest(rows) {
  if (!rows?.length) return [];
  const names = Object.keys(rows[0]);
  const region = element("div", { className: "wide", tabIndex: 0, aria: { role: "region", label: "Nearest training rows" } });
  region.append(element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col", textContent: name })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...names.map((name) => element("td", { textContent: shown(row[name]) })))))));
  return [element("h3", { textContent: "Nearest training rows" }), region];
}

export function explained(row, found) {
  const made = document.createDocumentFragment();
  made.append(
    element("p", {}, element("strong", { textContent: `Row ${count(row + 1)}` }), `: score ${short(found.score)}. `,
      found.p_value === null ? "" : `Of normal rows, ${percent(found.p_value)} at most score as low.`),
    ...contributions(found.contributions), ...counterfactual(found.counterfactual), ...nearest(found.nearest));
  return made;
}

// The same in a sentence, for those who hear it.
export function said(row, found) {
  const first = found.contributions.slice(0, 2).filter((part) => part.contribution > 0)
    .map((part) => `${part.column} is ${shown(part.value)}${part.typical === null ? "" : `, typical is ${shown(part.typical)}`}`);
  const moves = found.counterfactual?.changes.length;
  return `Row ${count(row + 1)}: ${first.join("; ") || "no column stands out"}.${moves ? ` It would ${found.counterfactual.reached ? "" : "not yet "}pass with ${counted(moves, "change")}.` : ""}`;
}
