// A file on its way through the service: in parts that it takes, one after the other. A failed one can be gone on with.
import { ServiceError } from "/page/service.js";

const PART = 20000, PATIENCE = 5;

export class Job {
  constructor(service, csv, limits) {
    Object.assign(this, { service, csv, done: 0, scores: [], pValues: [], seconds: 0 });
    this.maxRows = Math.min(PART, limits?.max_rows ?? PART);
    this.maxBytes = limits?.max_bytes ?? Infinity;
    this.stopped = new AbortController();
  }

  stop() {
    this.stopped.abort();
  }

  // progress(job) is called after each part, waiting(seconds) where the service asks for time.
  async run(progress, waiting) {
    while (this.done < this.csv.length) {
      const end = this.csv.partEnd(this.done, this.maxRows, this.maxBytes);
      if (end === this.done) throw new ServiceError(`Row ${end + 1} alone has more than the ${this.maxBytes} bytes that the service takes.`);
      const began = performance.now();
      const found = await this.patient(this.csv.part(this.done, end), waiting);
      if (found.scores.length !== end - this.done) {
        throw new ServiceError(`The service read ${found.scores.length} rows where this page sees ${end - this.done} (rows ${this.done + 1} to ${end}): check quotes and separators there.`);
      }
      for (const score of found.scores) this.scores.push(score ?? NaN);
      for (const p of found.p_values) this.pValues.push(p ?? NaN);
      this.done = end;
      this.seconds += (performance.now() - began) / 1000;
      progress(this);
    }
  }

  async patient(body, waiting) {
    for (let tries = 1; ; tries++) {
      try {
        return await this.service.ask("/predict", { body, signal: this.stopped.signal });
      } catch (error) {
        if (error.status !== 429 || tries === PATIENCE) throw error;
        const seconds = Math.min(30, error.wait || tries);
        waiting(seconds);
        await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
        this.stopped.signal.throwIfAborted();
      }
    }
  }

  get secondsLeft() {
    return (this.seconds / this.done) * (this.csv.length - this.done);
  }
}
