/** Hooks that several pages use: the route, server data, the theme. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, ApiError } from "./api";

/** Splits the URL hash into its path and its query: `#/calls?status=failed`. */
function readHash(): [path: string, query: URLSearchParams] {
  const hash = location.hash.replace(/^#\/?/, "");
  const at = hash.indexOf("?");
  return at < 0 ? [hash, new URLSearchParams()] : [hash.slice(0, at), new URLSearchParams(hash.slice(at + 1))];
}

function readRoute(): string[] {
  const decode = (part: string) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return readHash()[0].split("/").filter(Boolean).map(decode);
}

/** Returns a value that is read from the URL hash, and reads it again when the hash changes. */
function useHash<T>(read: () => T): T {
  const [value, setValue] = useState(read);
  const reader = useRef(read);
  reader.current = read;
  useEffect(() => {
    const change = () => setValue(() => reader.current());
    change();
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return value;
}

/** Returns the parts of the path in the URL hash. */
export function useRoute(): string[] {
  return useHash(readRoute);
}

/**
 * Returns a parameter of the query in the URL hash, and its setter. An empty value removes the
 * parameter. The values survive a reload and the browser's back button.
 */
export function useParam(name: string): [value: string, set: (value: string) => void] {
  const value = useHash(() => readHash()[1].get(name) ?? "");
  const set = useCallback((next: string) => setParams({ [name]: next }), [name]);
  return [value, set];
}

/** Sets several parameters of the query in the URL hash. */
export function setParams(values: Record<string, string>) {
  const [path, query] = readHash();
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const next = `#/${path}${query.size ? `?${query}` : ""}`;
  if (next === location.hash) return;
  history.replaceState(history.state, "", next);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export const to = (...parts: string[]) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** Returns a link to a page with parameters, such as a filtered list. */
export const toList = (page: string, params: Record<string, string>) => `${to(page)}?${new URLSearchParams(Object.entries(params).filter(([, value]) => value))}`;

export interface FetchState<T> {
  value: T | null;
  problem: ApiError | null;
  reload: () => void;
}

/**
 * Fetches JSON, and fetches it again every `every` milliseconds while the page is visible. `every`
 * may be a function of the latest value (null after an error), which must not change between renders.
 */
export function useFetch<T>(path: string | null, every: number | ((value: T | null) => number) = 0): FetchState<T> {
  const [state, setState] = useState<{ path: string | null; value: T | null; problem: ApiError | null }>({ path: null, value: null, problem: null });
  const [times, setTimes] = useState(0);
  const text = useRef("");
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer = 0;
    const load = async () => {
      let latest: T | null = null;
      try {
        const value = await get<T>(path, stop.signal);
        latest = value;
        const body = JSON.stringify(value);
        // Equal data must not redraw the page.
        if (body !== text.current) setState({ path, value, problem: null });
        text.current = body;
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = error instanceof ApiError ? error : new ApiError(0, (error as Error).message);
        text.current = "";
        setState((before) => ({ path, value: before.path === path ? before.value : null, problem }));
      }
      const delay = typeof every === "number" ? every : every(latest);
      if (delay) timer = window.setTimeout(() => (document.hidden ? wait() : load()), delay);
    };
    const wait = () => document.addEventListener("visibilitychange", load, { once: true, signal: stop.signal });
    text.current = "";
    load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, every, times]);
  const reload = useCallback(() => setTimes((n) => n + 1), []);
  const isCurrent = state.path === path;
  return { value: isCurrent ? state.value : null, problem: isCurrent ? state.problem : null, reload };
}

export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Throughline` : "Throughline";
  }, [title]);
}

export type Theme = "auto" | "light" | "dark";

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>(() => (localStorage.getItem("throughline.theme") as Theme | null) ?? "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("throughline.theme", theme);
  }, [theme]);
  return [theme, setTheme];
}

/** Whether lists show how long ago something happened, or its date and time. */
export type TimeStyle = "relative" | "absolute";

let timeStyle: TimeStyle = localStorage.getItem("throughline.times") === "absolute" ? "absolute" : "relative";

export const currentTimeStyle = () => timeStyle;

export function useTimeStyle(): [TimeStyle, (style: TimeStyle) => void] {
  const [style, setStyle] = useState(timeStyle);
  const set = (next: TimeStyle) => {
    timeStyle = next;
    localStorage.setItem("throughline.times", next);
    setStyle(next);
  };
  return [style, set];
}

/** Returns the current time, updated every `every` milliseconds, for relative times. */
export function useNow(every = 10_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
