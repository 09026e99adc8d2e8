/** A list that is searched, kept fresh, and read page by page: what the pages of runs, threads and calls share. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Problem } from "./api";
import { useAnswer } from "./hooks";
import { Empty, Loading, Trouble } from "./parts";

interface Row {
  id: string;
  /** When it was last written to, by which older rows are put in their order. */
  updated?: string;
  at?: string;
}

/** How many rows are asked for at once. */
const PAGE = "100";

export interface Listed<R> {
  /** The rows, once they are known. */
  rows: R[] | null;
  words: string;
  setWords: (words: string) => void;
  isSearched: boolean;
  problem: Problem | null;
  again: () => void;
  /** Asks for older rows, where there are any. */
  older?: () => void;
  isBusy: boolean;
}

/** The rows that the server lists under `name`, asked for again every few milliseconds. */
export function useList<R extends Row>(path: string, name: string, every: number, filters: Record<string, string> = {}): Listed<R> {
  const [words, setWords] = useState("");
  const [search, setSearch] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSearch(words.trim()), 200);
    return () => clearTimeout(timer);
  }, [words]);
  const wanted = Object.entries({ limit: PAGE, search, ...filters }).filter(([, value]) => value);
  const query = `${path}?${new URLSearchParams(wanted)}`;
  const first = useAnswer<Record<string, R[]> & { next?: string }>(query, every);
  const page = first.value ? first.value[name]! : null;

  // What was seen stays in the list, though newer rows push it off the first page.
  const seen = useRef<{ query: string; rows: Map<string, R> }>({ query: "", rows: new Map() });
  if (seen.current.query !== query) seen.current = { query, rows: new Map() };
  page?.forEach((row) => seen.current.rows.set(row.id, row));

  const [more, setMore] = useState<{ query: string; next?: string; problem?: Problem }>({ query: "" });
  const [isBusy, setBusy] = useState(false);
  const isOpen = more.query === query;
  const next = isOpen ? more.next : first.value?.next;
  const older = async () => {
    setBusy(true);
    try {
      const found = await get<Record<string, R[]> & { next?: string }>(`${query}&after=${encodeURIComponent(next!)}`);
      if (seen.current.query === query) found[name]!.forEach((row) => seen.current.rows.set(row.id, seen.current.rows.get(row.id) ?? row));
      setMore({ query, next: found.next });
    } catch (error) {
      setMore({ query, next, problem: error as Problem });
    }
    setBusy(false);
  };

  const rows = useMemo(() => {
    if (!page || !isOpen) return page;
    const fresh = new Set(page.map((row) => row.id));
    const time = (row: R) => Date.parse(row.updated ?? row.at ?? "");
    const others = [...seen.current.rows.values()].filter((row) => !fresh.has(row.id));
    return [...page, ...others.sort((a, b) => time(b) - time(a))];
  }, [page, isOpen, more]);
  return {
    rows,
    words,
    setWords,
    isSearched: wanted.length > 1,
    problem: (isOpen && more.problem) || first.problem,
    again: first.again,
    older: next ? older : undefined,
    isBusy,
  };
}

interface Props<R> {
  title: string;
  list: Listed<R>;
  placeholder: string;
  /** What else can be chosen from. */
  filters?: ComponentChildren;
  /** What is said where there is nothing, and what to do about it. */
  none: [searched: string, never: string];
  hint?: ComponentChildren;
  draw: (rows: R[]) => ComponentChildren;
}

/** The page of a list: its head with the search, the rows, and the way to older ones. */
export function ListPage<R>({ title, list, placeholder, filters, none, hint, draw }: Props<R>) {
  const { rows, words, setWords, problem, again, older, isBusy } = list;
  return (
    <>
      <header class="head">
        <h1>{title}</h1>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label={`Search ${title.toLowerCase()}`} placeholder={placeholder} value={words} onInput={(event) => setWords(event.currentTarget.value)} />
          {filters}
        </form>
      </header>
      {problem ? <Trouble problem={problem} again={again} /> : null}
      {!rows && !problem ? <Loading /> : null}
      {rows && !rows.length ? <Empty title={list.isSearched ? none[0] : none[1]}>{hint}</Empty> : null}
      {rows?.length ? draw(rows) : null}
      {older ? (
        <div class="actions">
          <button onClick={older} disabled={isBusy}>
            {isBusy ? "Looking…" : `Older ${title.toLowerCase()}`}
          </button>
        </div>
      ) : null}
    </>
  );
}
