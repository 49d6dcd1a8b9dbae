// A model card as elements: headings, paragraphs, lists, tables, code, bold. Text is only ever set as text.
import { element } from "/page/dom.js";

function inline(text) {
  const found = [];
  let rest = text;
  const pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)/;
  for (let match = pattern.exec(rest); match; match = pattern.exec(rest)) {
    found.push(rest.slice(0, match.index));
    if (match[1]) found.push(element("code", { textContent: match[1] }));
    else if (match[2]) found.push(element("strong", {}, ...inline(match[2])));
    else found.push(match[3] === match[4] ? match[3] : `${match[3]} (${match[4]})`);
    rest = rest.slice(match.index + match[0].length);
  }
  return [...found, rest].filter((part) => part !== "").map((part) => (typeof part === "string" ? part.replaceAll("&lt;", "<") : part));
}

const split = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
const isComment = (line) => /^\s*<!--.*-->\s*$/.test(line);
const isRule = (line) => /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(line ?? "");
const starts = (line) => /^(#{1,6}\s|```|\s*[-*+]\s|\s*\d+[.)]\s|\s*\|)/.test(line) || !line.trim();

function table(lines, i) {
  const cells = (name, line) => split(line).map((cell) => element(name, name === "th" ? { scope: "col" } : {}, ...inline(cell)));
  const head = element("thead", {}, element("tr", {}, ...cells("th", lines[i])));
  const body = element("tbody");
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) body.append(element("tr", {}, ...cells("td", lines[i])));
  const region = element("div", { className: "wide", tabIndex: 0, aria: { role: "region", label: "Table of the model card" } });
  region.append(element("table", {}, head, body));
  return [region, i];
}

// The text as a fragment; its headings begin at h`level`.
export function rendered(text, level = 3) {
  const made = document.createDocumentFragment(), lines = text.replaceAll("\r\n", "\n").split("\n");
  for (let i = 0; i < lines.length;) {
    const line = lines[i], heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line), item = /^\s*([-*+]|\d+[.)])\s+/.exec(line);
    if (!line.trim() || isComment(line)) {
      i++;
    } else if (line.startsWith("```")) {
      const end = lines.findIndex((other, j) => j > i && other.startsWith("```"));
      const last = end < 0 ? lines.length : end;
      made.append(element("pre", { tabIndex: 0 }, element("code", { textContent: lines.slice(i + 1, last).join("\n") })));
      i = last + 1;
    } else if (heading) {
      made.append(element(`h${Math.min(6, level - 1 + heading[1].length)}`, {}, ...inline(heading[2])));
      i++;
    } else if (item) {
      const list = element(/\d/.test(item[1]) ? "ol" : "ul");
      for (let next = item; next; next = /^\s*([-*+]|\d+[.)])\s+/.exec(lines[i] ?? "")) {
        let words = lines[i].slice(next[0].length);
        for (i++; i < lines.length && !starts(lines[i]); i++) words += ` ${lines[i].trim()}`;
        list.append(element("li", {}, ...inline(words)));
      }
      made.append(list);
    } else if (line.includes("|") && isRule(lines[i + 1])) {
      const [region, next] = table(lines, i);
      made.append(region);
      i = next;
    } else {
      let words = line.trim();
      for (i++; i < lines.length && !starts(lines[i]); i++) words += ` ${lines[i].trim()}`;
      made.append(element("p", {}, ...inline(words)));
    }
  }
  return made;
}
