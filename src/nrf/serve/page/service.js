// The service, as this page asks it: the token, and a sentence for each way in which an answer can fail.
export class ServiceError extends Error {
  constructor(message, { status = 0, columns = null, wait = 0 } = {}) {
    super(message);
    Object.assign(this, { status, columns, wait });
  }
}

const SENTENCES = {
  413: "This is more than the service takes at once.",
  429: "The service is busy with other requests.",
  503: "The service is busy or about to end.",
  504: "The service took too long and gave up.",
};

export class Service {
  // askToken: called where the service wants a token; resolves with one.
  constructor(askToken) {
    this.askToken = askToken;
    this.token = null;
    this.model = null;
  }

  // body: CSV text, or nothing for a GET
  async ask(path, { body, signal } = {}) {
    const address = this.model === null ? path : `${path}?model=${encodeURIComponent(this.model)}`;
    for (;;) {
      const token = this.token, headers = {};
      if (token) headers.Authorization = `Bearer ${token}`;
      if (body !== undefined) headers["Content-Type"] = "text/csv";
      let answer, content;
      try {
        answer = await fetch(address, { method: body === undefined ? "GET" : "POST", body, headers, signal, cache: "no-store" });
        content = await answer.text();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ServiceError("The service does not answer. Check that `nrf serve` is running and reachable, then try again.");
      }
      if (answer.status === 401) {
        if (token === this.token) this.token = await this.askToken(token ? "The service does not know this token." : "");
        continue;
      }
      return read(answer, content);
    }
  }
}

function read(answer, content) {
  let found;
  try {
    found = JSON.parse(content);
  } catch {
    found = null;
  }
  if (answer.ok && found !== null) return found;
  const words = String(found?.error?.message ?? ""), said = words.charAt(0).toUpperCase() + words.slice(1);
  const general = SENTENCES[answer.status] ?? (answer.status >= 500 ? "The service failed." : "");
  const message = [general, said].filter(Boolean).join(" ") || `The service answered ${answer.status} ${answer.statusText}, which this page does not understand.`;
  throw new ServiceError(message, {
    status: answer.status, columns: found?.error?.columns ?? null, wait: Number(answer.headers.get("Retry-After")) || 0,
  });
}
