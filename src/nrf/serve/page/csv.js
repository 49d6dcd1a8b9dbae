// CSV as the service reads it. One scan finds where records begin and end; cells are cut out of the text when they are shown.
export const SEPARATORS = [",", ";", "\t", "|"];
const LOOKED_AT = 50, LARGEST = 400e6, QUOTE = 34, LF = 10, CR = 13;

// Where the records stand: start, end, start, end, … Empty lines are none. At most `limit` records.
function places(text, separator, limit = Infinity) {
  const found = [], comma = separator.charCodeAt(0), n = text.length;
  let start = 0, i = 0, fresh = true; // fresh: at the beginning of a cell
  while (i < n && found.length < 2 * limit) {
    const code = text.charCodeAt(i);
    if (code === QUOTE && fresh) {
      i = quoteEnd(text, i + 1) + 1;
      fresh = false;
    } else if (code === LF || code === CR) {
      if (i > start) found.push(start, i);
      start = ++i;
      fresh = true;
    } else {
      fresh = code === comma;
      i++;
    }
  }
  if (start < n && found.length < 2 * limit) found.push(start, n);
  return found;
}

// The place of the quote that closes a cell; the end of the text if none does.
function quoteEnd(text, from) {
  let at = text.indexOf('"', from);
  while (at >= 0 && text.charCodeAt(at + 1) === QUOTE) at = text.indexOf('"', at + 2);
  return at < 0 ? text.length : at;
}

// The cells of one record.
export function cells(record, separator) {
  const found = [];
  let i = 0;
  for (;;) {
    let cell = "";
    if (record.charCodeAt(i) === QUOTE) {
      const end = quoteEnd(record, i + 1);
      cell = record.slice(i + 1, end).replaceAll('""', '"');
      i = end + 1;
    }
    let next = record.indexOf(separator, i);
    if (next < 0) next = record.length;
    found.push(cell + record.slice(i, next));
    if (next >= record.length) return found;
    i = next + 1;
  }
}

// What separates the cells, by the header and the first rows, by the same rule as the service's.
export function separatorOf(text) {
  const header = text.split(/\r\n|\r|\n/, 100).find((line) => line.trim()) ?? "";
  const there = SEPARATORS.filter((c) => header.includes(c));
  if (!there.length || (there.length === 1 && there[0] === ",")) return ",";
  const even = there.filter((c) => {
    const at = places(text, c, LOOKED_AT), widths = new Set();
    for (let i = 0; i < at.length; i += 2) widths.add(cells(text.slice(at[i], at[i + 1]), c).length);
    return widths.size === 1 && !widths.has(1);
  });
  if (even.length) return even.includes(",") ? "," : even[0];
  return there.includes(",") ? "," : there[0];
}

// A text with a header and rows, counted from 0.
export class CsvTable {
  constructor(text, separator) {
    this.text = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    this.separator = separator ?? separatorOf(this.text);
    this.places = places(this.text, this.separator);
    this.header = this.places.length ? cells(this.record(-1), this.separator) : [];
    this.length = Math.max(0, this.places.length / 2 - 1);
  }

  record(i) {
    return this.text.slice(this.places[2 * i + 2], this.places[2 * i + 3]);
  }

  row(i) {
    return cells(this.record(i), this.separator);
  }

  // The header and the rows from one place to before another, as they are written.
  part(from, to) {
    return `${this.record(-1)}\n${to > from ? this.text.slice(this.places[2 * from + 2], this.places[2 * to + 1]) : ""}\n`;
  }

  // The end of the longest part from a place on that has at most so many rows and bytes; the place itself if a row is too long.
  partEnd(from, maxRows, maxBytes) {
    let room = maxBytes - byteLength(this.record(-1)) - 2, i = from;
    const last = Math.min(this.length, from + maxRows);
    while (i < last) {
      room -= byteLength(this.text, this.places[2 * i + 2], i + 1 < this.length ? this.places[2 * i + 4] : this.places[2 * i + 3]);
      if (room < 0) break;
      i++;
    }
    return i;
  }
}

// Bytes of a text, or a part of it, as UTF-8.
export function byteLength(text, from = 0, to = text.length) {
  let bytes = to - from;
  for (let i = from; i < to; i++) {
    const code = text.charCodeAt(i);
    if (code >= 0x80) bytes += code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2;
  }
  return bytes;
}

// Rows as CSV text, quoted where they must be.
export function written(rows) {
  const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return rows.map((row) => `${row.map((cell) => quoted(String(cell))).join(",")}\n`).join("");
}

// The text of a file, unpacked if it is a .gz; an Error that says what to do, if it is none.
export async function fileText(file) {
  let bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    bytes = new Uint8Array(await new Response(unpacked).arrayBuffer().catch(() => {
      throw new Error(`${file.name} is a damaged .gz file; pack it again.`);
    }));
  }
  if (bytes.length > LARGEST) throw new Error(`${file.name} is too large for a browser; \`nrf detect score\` takes files of any size.`);
  if (String.fromCharCode(...bytes.slice(0, 4)) === "PAR1") {
    throw new Error(`${file.name} is a Parquet file. This page takes CSV; \`nrf detect score\` and the address /predict take Parquet.`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file.name} is not UTF-8 text; save it as CSV (UTF-8) and choose it again.`);
  }
}
