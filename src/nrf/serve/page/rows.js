// The table of rows: most abnormal first, sortable, in pages, each row with a button that asks why.
import { byId, count, counted, element, setText, short, shown } from "/page/dom.js";

const PER_PAGE = 12;
const SCORE = { name: "Score", key: "score" }, P = { name: "p-value", key: "p" };

// What cells are sorted by: numbers where all are, text otherwise; empty cells come last either way.
export function sortedBy(rows, cell, down) {
  const values = new Map(rows.map((row) => [row, cell(row)]));
  const full = rows.filter((row) => values.get(row) !== ""), empty = rows.filter((row) => values.get(row) === "");
  const numbers = full.every((row) => Number.isFinite(Number(values.get(row))));
  const compare = numbers ? (a, b) => Number(values.get(a)) - Number(values.get(b)) : (a, b) => String(values.get(a)).localeCompare(String(values.get(b)), "en", { numeric: true });
  full.sort((a, b) => (down ? -1 : 1) * compare(a, b) || a - b);
  return [...full, ...empty];
}

export class RowTable {
  // choose: called with the row whose button is pressed
  constructor(choose) {
    this.choose = choose;
    this.head = byId("found").tHead;
    this.body = byId("found").tBodies[0];
    this.page = 0;
    this.selected = null;
    byId("back").addEventListener("click", () => this.turn(-1));
    byId("next").addEventListener("click", () => this.turn(1));
    byId("all").addEventListener("change", () => { this.page = 0; this.update(this.flagged); });
    this.body.addEventListener("keydown", (event) => this.walk(event));
  }

  // csv: the user's rows; scored: their scores; names: columns of the model, which are shown first
  open(csv, scored, names) {
    const known = new Set(names), all = csv.header.map((name, place) => ({ name, place }));
    const needed = all.filter((column) => known.has(column.name)), others = all.filter((column) => !known.has(column.name));
    Object.assign(this, { csv, scored, columns: [{ name: "Row", key: "row" }, SCORE, P, ...others, ...needed], page: 0, selected: null, sort: { column: SCORE, down: false } });
    byId("all").checked = false;
    this.drawHead();
  }

  cell(row, column) {
    if (column.key === "row") return row + 1;
    if (column.key) return (column.key === "score" ? this.scored.scores : this.scored.pValues)[row];
    return this.csv.row(row)[column.place] ?? "";
  }

  drawHead() {
    this.head.replaceChildren(element("tr", {}, ...this.columns.map((column) => {
      const now = this.sort.column === column;
      const button = element("button", { type: "button", className: "sort", textContent: column.name });
      button.addEventListener("click", () => {
        this.sort = { column, down: now && !this.sort.down };
        this.page = 0;
        this.drawHead();
        this.update(this.flagged);
        this.head.querySelectorAll("button")[this.columns.indexOf(column)].focus();
      });
      const cell = element("th", { scope: "col", className: column.key ? "number" : "" }, button);
      if (now) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      return cell;
    })));
  }

  // Show the first `flagged` rows of the order, or all of them.
  update(flagged) {
    if (flagged !== this.flagged) this.page = 0;
    this.flagged = flagged;
    const all = byId("all").checked, rows = this.scored.order.slice(0, all ? undefined : flagged);
    const { column, down } = this.sort;
    if (column === SCORE) this.rows = down ? rows.reverse() : rows;
    else this.rows = sortedBy(rows, (row) => this.cell(row, column), down);
    this.limit = new Set(all ? this.scored.order.slice(0, flagged) : []);
    this.draw();
  }

  draw() {
    const pages = Math.max(1, Math.ceil(this.rows.length / PER_PAGE));
    this.page = Math.min(this.page, pages - 1);
    const first = this.page * PER_PAGE, part = this.rows.slice(first, first + PER_PAGE);
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.row : null;
    this.body.replaceChildren(...part.map((row) => this.line(row)));
    if (focused !== null) this.body.querySelector(`[data-row="${focused}"]`)?.focus();
    byId("pages").hidden = pages === 1;
    byId("back").disabled = this.page === 0;
    byId("next").disabled = this.page === pages - 1;
    setText(byId("page"), `${count(first + 1)} to ${count(first + part.length)} of ${counted(this.rows.length, "row")}`);
    byId("none").hidden = part.length > 0;
    setText(byId("none"), part.length ? "" : "No row is flagged at this threshold.");
    setText(byId("list-title"), byId("all").checked ? "All rows" : "Flagged rows");
  }

  line(row) {
    const button = element("button", { type: "button", className: "row", textContent: count(row + 1), data: { row } });
    button.setAttribute("aria-label", `Why row ${row + 1} is unusual`);
    button.setAttribute("aria-pressed", String(row === this.selected));
    const cells = this.columns.slice(1).map((column) => {
      const value = this.cell(row, column), number = column.key || (value !== "" && Number.isFinite(Number(value)));
      const text = column.key === "p" ? String(Number(value.toPrecision(2))) : column.key ? short(value) : shown(value);
      return element("td", { className: `${number ? "number" : ""}${value === "" ? " soft" : ""}`, textContent: text });
    });
    const made = element("tr", { className: this.limit.has(row) ? "over" : "" }, element("th", { scope: "row" }, button), ...cells);
    made.classList.toggle("now", row === this.selected);
    made.addEventListener("click", () => this.select(row));
    return made;
  }

  select(row) {
    this.selected = row;
    for (const button of this.body.querySelectorAll("button.row")) {
      const now = Number(button.dataset.row) === row;
      button.setAttribute("aria-pressed", String(now));
      button.closest("tr").classList.toggle("now", now);
      if (now) button.focus({ preventScroll: true });
    }
    this.choose(row);
  }

  turn(pages) {
    this.page += pages;
    this.draw();
    const [from, other] = pages > 0 ? ["next", "back"] : ["back", "next"];
    if (byId(from).disabled) byId(other).focus();
  }

  // Arrow keys go from row to row.
  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...this.body.querySelectorAll("button.row")];
    const next = buttons[buttons.indexOf(event.target) + step];
    if (next) { event.preventDefault(); next.focus(); }
  }
}
