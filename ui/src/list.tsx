/** A searchable, paged list that refreshes itself, for runs, threads and calls. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, ApiError } from "./api";
import { useFetch } from "./hooks";
import { Empty, FetchStatus, PageHead } from "./parts";

interface Row {
  id: string;
  /** Time of the last write, which sorts older rows. */
  updated?: string;
  at?: string;
}

/** Number of rows per request. */
const PAGE = "100";

export interface ListState<R> {
  /** The rows; `null` until they are loaded. */
  rows: R[] | null;
  text: string;
  setText: (text: string) => void;
  isSearched: boolean;
  problem: ApiError | null;
  reload: () => void;
  /** Loads the next page of older rows; missing if there are none. */
  loadOlder?: () => void;
  isBusy: boolean;
}

/** Loads the rows in member `name` of the response, and again every `every` milliseconds. */
export function useList<R extends Row>(path: string, name: string, every: number, filters: Record<string, string> = {}): ListState<R> {
  const [text, setText] = useState("");
  const [search, setSearch] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSearch(text.trim()), 200);
    return () => clearTimeout(timer);
  }, [text]);
  const params = Object.entries({ limit: PAGE, search, ...filters }).filter(([, value]) => value);
  const query = `${path}?${new URLSearchParams(params)}`;
  const first = useFetch<Record<string, R[]> & { next?: string }>(query, every);
  const page = first.value ? first.value[name]! : null;

  // Loaded rows stay in the list when newer rows push them off the first page.
  const loaded = useRef<{ query: string; rows: Map<string, R> }>({ query: "", rows: new Map() });
  if (loaded.current.query !== query) loaded.current = { query, rows: new Map() };
  page?.forEach((row) => loaded.current.rows.set(row.id, row));

  const [more, setMore] = useState<{ query: string; next?: string; problem?: ApiError }>({ query: "" });
  const [isBusy, setBusy] = useState(false);
  const isOpen = more.query === query;
  const next = isOpen ? more.next : first.value?.next;
  const loadOlder = async () => {
    setBusy(true);
    try {
      const response = await get<Record<string, R[]> & { next?: string }>(`${query}&after=${encodeURIComponent(next!)}`);
      if (loaded.current.query === query) response[name]!.forEach((row) => loaded.current.rows.set(row.id, loaded.current.rows.get(row.id) ?? row));
      setMore({ query, next: response.next });
    } catch (error) {
      setMore({ query, next, problem: error as ApiError });
    }
    setBusy(false);
  };

  const rows = useMemo(() => {
    if (!page || !isOpen) return page;
    const fresh = new Set(page.map((row) => row.id));
    const time = (row: R) => Date.parse(row.updated ?? row.at ?? "");
    const older = [...loaded.current.rows.values()].filter((row) => !fresh.has(row.id));
    return [...page, ...older.sort((a, b) => time(b) - time(a))];
  }, [page, isOpen, more]);
  return {
    rows,
    text,
    setText,
    isSearched: params.length > 1,
    problem: (isOpen && more.problem) || first.problem,
    reload: first.reload,
    loadOlder: next ? loadOlder : undefined,
    isBusy,
  };
}

interface Props<R> {
  title: string;
  list: ListState<R>;
  placeholder: string;
  filters?: ComponentChildren;
  /** Titles of an empty list: with a search text, and without. */
  none: [searched: string, never: string];
  hint?: ComponentChildren;
  draw: (rows: R[]) => ComponentChildren;
}

/** A list page: header with search, rows, and a button for older rows. */
export function ListPage<R>({ title, list, placeholder, filters, none, hint, draw }: Props<R>) {
  const { rows, text, setText, problem, reload, loadOlder, isBusy } = list;
  // Thread is a term of the project and is always capitalised.
  const noun = title === "Threads" ? title : title.toLowerCase();
  return (
    <>
      <PageHead title={title}>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label={`Search ${noun}`} placeholder={placeholder} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          {filters}
        </form>
      </PageHead>
      <FetchStatus state={{ value: rows, problem, reload }} />
      {rows && !rows.length ? <Empty title={list.isSearched ? none[0] : none[1]}>{hint}</Empty> : null}
      {rows?.length ? draw(rows) : null}
      {loadOlder ? (
        <div class="actions">
          <button onClick={loadOlder} disabled={isBusy}>
            {isBusy ? "Loading…" : `Load older ${noun}`}
          </button>
        </div>
      ) : null}
    </>
  );
}
