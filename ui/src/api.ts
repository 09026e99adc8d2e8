/** Requests to the server: JSON with the stored API key, and event streams. */

import { save } from "./export";

const KEY = "throughline.key";

let token: string | null = null;

export const storedKey = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

export function storeKey(secret: string, permanent: boolean) {
  clearKey();
  (permanent ? localStorage : sessionStorage).setItem(KEY, secret);
}

export function clearKey() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

/** A failed request, with its HTTP status; 0 if the server did not respond. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

function headers(): Record<string, string> {
  const secret = storedKey();
  return secret ? { authorization: `Bearer ${secret}` } : {};
}

async function toApiError(response: Response): Promise<ApiError> {
  let message = response.statusText || `HTTP ${response.status}`;
  try {
    const body = await response.json();
    const detail = body.detail ?? body.error?.message ?? body.error;
    message = typeof detail === "string" ? detail : (detail?.message ?? message);
  } catch {
    // The body is not JSON, so the status is the message.
  }
  return new ApiError(response.status, message);
}

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", ...init, headers: { ...headers(), ...init.headers } });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError(0, "the server does not respond");
  }
  if (response.status === 401) dispatchEvent(new Event("throughline:signin"));
  if (!response.ok) throw await toApiError(response);
  return response;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { signal })).json();
}

/** Sends a change. Without an API key, a token proves that the page is of the same origin. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await postJson(path, body)).json();
}

/** Sends JSON and returns the response, for callers that read its headers. */
export const postJson = (path: string, body: unknown) => change("POST", path, body);

/** Sends a change with any method. */
export async function change(method: string, path: string, body?: unknown): Promise<Response> {
  return send(path, await writeRequest(method, body === undefined ? undefined : JSON.stringify(body)));
}

async function writeRequest(method: string, body?: string): Promise<RequestInit> {
  if (!storedKey() && token === null) token = (await get<{ token: string }>("/v1/throughline/token")).token;
  const extra: Record<string, string> = token ? { "x-throughline-token": token } : {};
  return { method, body, headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...extra } };
}

/** Sends any request and returns the response, also if its status is an error. */
export async function exchange(method: string, path: string, body: string | undefined, signal: AbortSignal): Promise<Response> {
  const init = /^(GET|HEAD)$/.test(method) ? { method } : await writeRequest(method, body);
  return fetch(path, { cache: "no-store", ...init, signal, headers: { ...headers(), ...init.headers } });
}

export async function download(path: string, name: string) {
  save(name, await (await send(path)).blob());
}

/** An event of a run; its members depend on its `type`. */
export type RunEvent = Record<string, any>;

/** An event of a run, with its number from 1 and its time. */
export interface NumberedEvent {
  n: number;
  at: string;
  event: RunEvent;
}

export type Connection = "opening" | "live" | "lost" | "ended";

/**
 * Number of events in the first request, enough to fill any screen. Later events are requested once
 * these are drawn, so a long run opens as fast as a short one.
 */
const FIRST_EVENTS = 100;

/** Waits for the next frame, or 100 ms on a hidden page, where the browser draws no frames. */
const nextFrame = () =>
  new Promise<void>((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 100);
  });

/** Start of the SSE frame that the server sends when a stream reaches its `limit`. */
const LIMIT_FRAME = "event: more\ndata: ";

/** How a stream ended: with the run, at the limit, or with the connection. */
type StreamEnd = "over" | "more" | "lost";

/**
 * Follows the events of a run. After a lost connection, the stream resumes after the last received
 * event, so no event is missed or repeated.
 */
export function follow(run: string, onEvents: (events: NumberedEvent[]) => void, onConnection: (state: Connection) => void): () => void {
  const stop = new AbortController();
  let last = 0;
  let wait = 250;
  let wake: (() => void) | null = null;
  const online = () => wake?.();
  addEventListener("online", online);

  async function connect(): Promise<StreamEnd> {
    const limit = last ? "" : `&limit=${FIRST_EVENTS}`;
    const response = await send(`/v1/throughline/runs/${encodeURIComponent(run)}/events/stream?after=${last}${limit}`, { signal: stop.signal });
    onConnection("live");
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "lost";
      wait = 250;
      buffer += value;
      const frames = buffer.split("\n\n");
      buffer = frames.pop() ?? "";
      const events: NumberedEvent[] = [];
      let end: StreamEnd | null = null;
      for (const frame of frames) {
        if (frame.startsWith("event: end")) end = "over";
        if (frame.startsWith(LIMIT_FRAME)) {
          last = JSON.parse(frame.slice(LIMIT_FRAME.length)).n;
          end = "more";
        }
        if (!frame.startsWith("data: ")) continue;
        const event: NumberedEvent = JSON.parse(frame.slice(6));
        if (event.n <= last) continue;
        last = event.n;
        events.push(event);
      }
      if (events.length) onEvents(events);
      if (end === "over") return end;
      await nextFrame();
      if (end) return end;
    }
  }

  (async () => {
    onConnection("opening");
    while (!stop.signal.aborted) {
      try {
        const end = await connect();
        if (end === "over") {
          onConnection("ended");
          break;
        }
        if (end === "more") continue;
      } catch (error) {
        if (stop.signal.aborted) break;
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
          onConnection("ended");
          break;
        }
      }
      onConnection("lost");
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
      wait = Math.min(wait * 2, 5000);
    }
    removeEventListener("online", online);
  })();
  return () => stop.abort();
}
