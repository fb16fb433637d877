"use strict";
// ---- one answer's stream, over as many connections as it takes
const FIRST_BYTE_MS = 150000, SILENCE_MS = 60000;  // the server pings every 15 s once it has begun
const STOP_WAIT_MS = 3000;
/** Pauses before reconnecting, 31 s in total: the server continues for about as long without a reader. */
const RESUME_AFTER_MS = [250, 750, 2000, 4000, 8000, 8000, 8000];

/** Server-sent events of a response body, as the HTML standard parses them, yielding {event, data, id}; without an id of its own it is null. */
async function* serverEvents(body, onBytes) {
  const reader = body.getReader();
  const decoder = new TextDecoder();  // keeps the bytes of a character that is cut between two reads
  const blank = () => ({ event: "", data: [], id: null });
  let buffer = "", next = blank();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      onBytes();
      buffer += decoder.decode(value, { stream: !done });
      const lines = buffer.split(done ? /\r\n?|\n/ : /\r\n|\r(?!$)|\n/);  // the \n of a last \r may come with the next read
      buffer = lines.pop();
      for (const line of lines) {
        const [, field, content] = /^([^:]*):? ?(.*)$/s.exec(line);
        if (field === "data") next.data.push(content);
        else if (field === "event" || field === "id") next[field] = content;
        else if (!line) {
          if (next.data.length) yield { ...next, data: next.data.join("\n") };
          next = blank();
        }
      }
      if (done) return;  // an event without its blank line is not an event
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The connection ended before the answer did. */
const cutOff = (message) => new Problem(message, { isPassing: true });

class AnswerStream {
  queryId = null; lastId = 0; connection = null; wake = null;
  ended = false; stopping = false; abandoned = false; resuming = false;

  /**
   * onEvent(name, value): each event once, in order, whatever happened to the connection.
   * onResuming(isResuming): the connection is lost; it is back.
   */
  constructor(path, json, { onEvent, onResuming }) {
    Object.assign(this, { path, json: { ...json, stream: true, resumable: true }, onEvent, onResuming });
  }

  /** True if the rest can be requested. */
  get canResume() { return this.queryId !== null && !this.ended; }

  /** Resolves when the last event has come, or the stream was abandoned; throws a Problem when it will never come. */
  async run() {
    try {
      await this.connect(this.path, { method: "POST", json: this.json }, FIRST_BYTE_MS);
    } catch (error) {
      if (!error.isPassing || !this.canResume) throw error;
      await this.resume();
    }
  }

  /** Comes back for the rest, again and again; each connection that brings something new starts the patience afresh. */
  async resume() {
    for (let attempt = 0; !this.ended && !this.abandoned;) {
      this.setResuming(true);
      if (attempt === RESUME_AFTER_MS.length) throw cutOff(T.restLost);
      await this.wait(RESUME_AFTER_MS[attempt] * (0.75 + Math.random() / 2));
      if (this.abandoned) return;
      const before = this.lastId;
      try {
        await this.connect(url`/v1/queries/${this.queryId}/events`, { headers: { "Last-Event-ID": String(before) } }, SILENCE_MS);
      } catch (error) {
        if (!error.isPassing) throw error.status === 404 ? this.lost() : error;
      }
      attempt = this.lastId > before ? 0 : attempt + 1;
    }
  }

  /** The server has no more of it: 404 or 204. */
  lost() {
    this.queryId = null;
    return new Problem(T.restGone);
  }

  async connect(path, options, firstByteMs) {
    const connection = this.connection = new AbortController();
    let timer, silent = false;
    const patience = (ms) => { clearTimeout(timer); timer = setTimeout(() => { silent = true; connection.abort(); }, ms); };
    try {
      patience(firstByteMs);
      const response = await request(path, { ...options, signal: connection.signal, accept: "text/event-stream" });
      if (response.status === 204) throw this.lost();
      if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) throw new Problem(T.notAStream);
      await this.read(response.body, () => patience(SILENCE_MS));
    } catch (error) {
      if (this.abandoned) return;
      if (silent) throw cutOff(T.silent);
      throw error instanceof Problem ? error : cutOff(T.broke);
    } finally {
      clearTimeout(timer);
    }
  }

  async read(body, onBytes) {
    for await (const { event, data, id } of serverEvents(body, onBytes)) {
      const value = parseJson(data), number = Number.parseInt(id, 10);
      if (value === null) throw new Problem(T.unreadableStream);
      if (number <= this.lastId) continue;  // had it before the connection was lost
      if (number) this.lastId = number;
      if (event === "meta") {
        this.queryId = value.request_id ?? null;
        if (this.stopping) this.askToStop();
      }
      this.setResuming(false);
      this.ended = event === "done" || event === "error";
      this.onEvent(event, value);
      if (this.ended) return;
    }
    throw cutOff(T.cut);
  }

  setResuming(isResuming) {
    if (this.resuming === isResuming) return;
    this.resuming = isResuming;
    this.onResuming(isResuming);
  }

  /** A pause that ends early when the network is back or the answer is no longer wanted. */
  wait(ms) { return new Promise((resolve) => { this.wake = resolve; setTimeout(resolve, ms); }); }

  /** Has the server end the answer, which then says so itself; without a word from it the connection is closed. */
  stop() {
    if (this.stopping) { this.abandon(); return; }
    this.stopping = true;
    if (this.queryId !== null) this.askToStop();
    setTimeout(() => this.abandon(), STOP_WAIT_MS);
  }

  askToStop() {
    // keepalive: also when the page is being left
    request(url`/v1/queries/${this.queryId}/stop`, { method: "POST", keepalive: true }).catch(() => this.abandon());
  }

  /** Closes the connection; an answer that cannot be resumed ends with it. */
  abandon() {
    if (this.ended) return;
    this.abandoned = true;
    this.connection?.abort();
    this.wake?.();
  }
}
