/** What pages share: the address, answers of the server, the theme. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "./api";

/** Where we are: what stands behind the hash, in its parts. */
export function usePlace(): string[] {
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
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const change = () => setPlace(read());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return place;
}

export const to = (...parts: string[]) => `#/${parts.map(encodeURIComponent).join("/")}`;

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  again: () => void;
}

/** What the server answers; asked for again every few seconds while the page is looked at. */
export function useAnswer<T>(path: string | null, every = 0): Loaded<T> {
  const [state, setState] = useState<{ path: string | null; value: T | null; problem: Problem | null }>({ path: null, value: null, problem: null });
  const [times, setTimes] = useState(0);
  const text = useRef("");
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        const value = await get<T>(path, stop.signal);
        const said = JSON.stringify(value);
        // The same once more changes nothing on the page.
        if (said !== text.current) setState({ path, value, problem: null });
        text.current = said;
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, (error as Error).message);
        text.current = "";
        setState((before) => ({ path, value: before.path === path ? before.value : null, problem }));
      }
      if (every) timer = window.setTimeout(() => (document.hidden ? wait() : ask()), every);
    };
    const wait = () => document.addEventListener("visibilitychange", ask, { once: true, signal: stop.signal });
    text.current = "";
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, every, times]);
  const again = useCallback(() => setTimes((n) => n + 1), []);
  const isCurrent = state.path === path;
  return { value: isCurrent ? state.value : null, problem: isCurrent ? state.problem : null, again };
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

/** The time, for what is told as long ago. */
export function useNow(every = 10_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
