// What both pages need: elements, numbers as text, times as text.
export function element(name, properties = {}, ...children) {
  const { aria = {}, data = {}, ...own } = properties;
  const made = Object.assign(document.createElement(name), own);
  for (const [key, value] of Object.entries(aria)) made.setAttribute(key === "role" ? key : `aria-${key}`, value);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

// Text is only written where it is new, so that a live region says nothing twice.
export function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

export function short(value) {
  if (value === null || value === undefined) return "not finite";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

const COUNTS = new Intl.NumberFormat("en");
export const count = (n) => COUNTS.format(n);
export const counted = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// A share as per cent, with as many digits as it needs.
export function percent(share) {
  const value = 100 * share;
  return `${value === 0 || value >= 10 ? Math.round(value) : Number(value.toPrecision(2))} %`;
}

// A value of a table: numbers as they are but for the noise of floating point.
export function shown(value) {
  if (value === null || value === undefined || value === "") return "missing";
  if (typeof value === "number") return String(Number(value.toPrecision(7)));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function duration(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
