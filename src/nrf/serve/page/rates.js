// From scores and p-values to decisions, as nrf.detect.calibration does it: all in the browser, so that a slider answers at once.

// How many of the numbers, sorted upwards, are below a value; with `equal` also those that equal it.
export function below(sorted, value, equal = false) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value || (equal && sorted[middle] === value)) low = middle + 1; else high = middle;
  }
  return low;
}

// Scores of n normal rows that nothing was learned from; of many rows a part is known, spread evenly over their ranks.
export class Calibration {
  constructor({ n, scores }) {
    this.n = n;
    this.scores = scores;
    this.lowestRate = 1 / (n + 1);
  }

  // The share of normal rows that a rate really allows: a multiple of 1 / (n + 1).
  kept(rate) {
    return Math.floor(rate * (this.n + 1) + 1e-9) / (this.n + 1);
  }

  // The score below which rows are flagged at a false-alarm rate; −∞ where so few rows cannot keep it.
  threshold(rate) {
    const k = Math.min(this.n, Math.floor(rate * (this.n + 1) + 1e-9)) - 1;
    if (k < 0) return -Infinity;
    const known = this.scores.length;
    return this.scores[known === this.n ? k : Math.round((k * (known - 1)) / (this.n - 1))];
  }

  // The false-alarm rate of a threshold: the share of normal rows below it, at most.
  rate(threshold) {
    if (threshold === -Infinity) return 0;
    const share = below(this.scores, threshold) / this.scores.length;
    return Math.min(1, (Math.round(share * this.n) + 1) / (this.n + 1));
  }
}

// Scores and p-values of a file, with its rows in order: the most abnormal first. Rows without a finite score have no place in it.
export class Scored {
  constructor(scores, pValues) {
    this.scores = scores;
    this.pValues = pValues;
    this.order = scores.map((_, i) => i).filter((i) => Number.isFinite(scores[i]) && Number.isFinite(pValues[i]));
    this.order.sort((a, b) => scores[a] - scores[b] || a - b);
    this.sorted = this.order.map((i) => scores[i]);
    this.sortedP = this.order.map((i) => pValues[i]);
  }

  get n() {
    return this.order.length;
  }

  // How many rows a rule flags: {rate} by p-values, {score} by the score. They are the first ones of the order.
  flagged(rule) {
    return "rate" in rule ? below(this.sortedP, rule.rate + 1e-12, true) : below(this.sorted, rule.score);
  }

  // The greatest p-value that Benjamini–Hochberg flags at a false discovery rate; 0 if it flags none.
  cutoff(rate) {
    for (let k = this.n; k > 0; k--) if (this.sortedP[k - 1] <= (rate * k) / this.n) return this.sortedP[k - 1];
    return 0;
  }
}

// What a rule means for a file: rows flagged, false alarms to expect at most, and the share of the flagged they are at most.
export function outcome(scored, calibration, rule) {
  const flagged = scored.flagged(rule);
  const rate = "rate" in rule ? calibration.kept(rule.rate) : calibration.rate(rule.score);
  const expected = rate * scored.n;
  return {
    flagged, rate, expected, fdr: flagged ? Math.min(1, expected / flagged) : 0,
    threshold: "rate" in rule ? calibration.threshold(rule.rate) : rule.score,
  };
}

// Counts of sorted numbers in bins of equal width; what lies outside is counted at the ends.
export function bins(sorted, low, high, n) {
  const edges = Array.from({ length: n - 1 }, (_, i) => below(sorted, low + ((i + 1) * (high - low)) / n));
  return [...edges, sorted.length].map((edge, i) => edge - (i ? edges[i - 1] : 0));
}

// What range of scores to draw: all calibration rows, and as much below them as three times their width.
export function drawn(scored, calibration) {
  const known = calibration.scores, top = known[known.length - 1];
  const high = Math.max(top, Math.min(scored.sorted[scored.n - 1] ?? top, top + (top - known[0])));
  const low = Math.min(known[0], Math.max(scored.sorted[0] ?? known[0], known[0] - 3 * (top - known[0])));
  const room = (high - low || 1) / 50;
  return [low - room, high + room];
}
