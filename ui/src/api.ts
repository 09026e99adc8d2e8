/** What the page asks of the server: JSON with the key of whoever signed in, and streams of events. */

const KEY = "throughline.key";

let token: string | null = null;

export const key = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

export function remember(secret: string, lasting: boolean) {
  forget();
  (lasting ? localStorage : sessionStorage).setItem(KEY, secret);
}

export function forget() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

/** Why there is no answer. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

function headers(): Record<string, string> {
  const secret = key();
  return secret ? { authorization: `Bearer ${secret}` } : {};
}

async function problem(response: Response): Promise<Problem> {
  let message = response.statusText || `HTTP ${response.status}`;
  try {
    const said = await response.json();
    const detail = said.detail ?? said.error?.message ?? said.error;
    message = typeof detail === "string" ? detail : (detail?.message ?? message);
  } catch {
    // It is no JSON: the status has to do.
  }
  return new Problem(response.status, message);
}

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", ...init, headers: { ...headers(), ...init.headers } });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Problem(0, "the server does not answer");
  }
  if (response.status === 401) dispatchEvent(new Event("throughline:signin"));
  if (!response.ok) throw await problem(response);
  return response;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { signal })).json();
}

/** A change: where there are no keys, a page shows that it is ours by a token. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  if (!key() && token === null) token = (await get<{ token: string }>("/v1/throughline/token")).token;
  const own: Record<string, string> = token ? { "x-throughline-token": token } : {};
  const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...own } };
  return (await send(path, init)).json();
}

export async function download(path: string, name: string) {
  const blob = await (await send(path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** An event of a run, with its number. */
export interface Told {
  n: number;
  at: string;
  said: Record<string, any>;
}

export type Connection = "opening" | "live" | "lost" | "ended";

/** How many events are asked for at first: as many as fill any screen. The rest is asked for once they are shown, so a long run opens as a short one does. */
const FIRST = 100;

/** Lets the page show what it heard before more is read. A page that nobody sees draws nothing. */
const drawn = () =>
  new Promise<void>((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 100);
  });

/** How a stream says that it ends at its limit. */
const MORE = "event: more\ndata: ";

/** What ended a stream: the run, a limit, or the connection. */
type End = "over" | "more" | "lost";

/** Follows a run. After a lost connection it goes on behind the last event that came, so nothing is missed or told twice. */
export function follow(run: string, hear: (events: Told[]) => void, connection: (state: Connection) => void): () => void {
  const stop = new AbortController();
  let last = 0;
  let wait = 250;
  let wake: (() => void) | null = null;
  const online = () => wake?.();
  addEventListener("online", online);

  async function once(): Promise<End> {
    const limit = last ? "" : `&limit=${FIRST}`;
    const response = await send(`/v1/throughline/runs/${encodeURIComponent(run)}/events/stream?after=${last}${limit}`, { signal: stop.signal });
    connection("live");
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "lost";
      wait = 250;
      rest += value;
      const frames = rest.split("\n\n");
      rest = frames.pop() ?? "";
      const events: Told[] = [];
      let end: End | null = null;
      for (const frame of frames) {
        if (frame.startsWith("event: end")) end = "over";
        if (frame.startsWith(MORE)) {
          last = JSON.parse(frame.slice(MORE.length)).n;
          end = "more";
        }
        if (!frame.startsWith("data: ")) continue;
        const told: Told = JSON.parse(frame.slice(6));
        if (told.n <= last) continue;
        last = told.n;
        events.push(told);
      }
      if (events.length) hear(events);
      if (end === "over") return end;
      await drawn();
      if (end) return end;
    }
  }

  (async () => {
    connection("opening");
    while (!stop.signal.aborted) {
      try {
        const end = await once();
        if (end === "over") {
          connection("ended");
          break;
        }
        if (end === "more") continue;
      } catch (error) {
        if (stop.signal.aborted) break;
        if (error instanceof Problem && error.status >= 400 && error.status < 500) {
          connection("ended");
          break;
        }
      }
      connection("lost");
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
