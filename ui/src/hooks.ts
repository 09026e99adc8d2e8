/** Hooks that several pages use: the route, server data, the theme. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, ApiError } from "./api";

/** Returns the parts of the URL hash. */
export function useRoute(): string[] {
  const read = () =>
    location.hash
      .replace(/^#\/?/, "")
      .split("/")
      .filter(Boolean)
      .map((part) => {
        try {
          return decodeURIComponent(part);
        } catch {
          return part;
        }
      });
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const change = () => setRoute(read());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}

export const to = (...parts: string[]) => `#/${parts.map(encodeURIComponent).join("/")}`;

export interface FetchState<T> {
  value: T | null;
  problem: ApiError | null;
  reload: () => void;
}

/** Fetches JSON, and fetches it again every `every` milliseconds while the page is visible. */
export function useFetch<T>(path: string | null, every = 0): FetchState<T> {
  const [state, setState] = useState<{ path: string | null; value: T | null; problem: ApiError | null }>({ path: null, value: null, problem: null });
  const [times, setTimes] = useState(0);
  const text = useRef("");
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer = 0;
    const load = async () => {
      try {
        const value = await get<T>(path, stop.signal);
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
      if (every) timer = window.setTimeout(() => (document.hidden ? wait() : load()), every);
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

/** Returns the current time, updated every `every` milliseconds, for relative times. */
export function useNow(every = 10_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
