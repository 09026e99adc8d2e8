/** A searchable, paged list that refreshes itself, for runs, threads and calls. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, ApiError } from "./api";
import { count } from "./format";
import { save, toCsv } from "./export";
import { setParams, useFetch, useParam } from "./hooks";
import { Choice, Empty, FetchStatus, PageHead } from "./parts";
import { bounds, rangeLabel, RANGES } from "./range";
import { isSaved, toggleView, viewName } from "./views";

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

/** Returns a search text for an input field, and the same text in the URL after a short delay. */
function useSearch(): [text: string, setText: (text: string) => void, search: string] {
  const [search, setSearch] = useParam("search");
  const [text, setText] = useState(search);
  // The back button changes the URL, and the field follows.
  useEffect(() => setText((before) => (before.trim() === search ? before : search)), [search]);
  useEffect(() => {
    const timer = setTimeout(() => setSearch(text.trim()), 200);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText, search];
}

/** Loads the rows in member `name` of the response, and again every `every` milliseconds. */
export function useList<R extends Row>(path: string, name: string, every: number, filters: Record<string, string> = {}): ListState<R> {
  const [text, setText, search] = useSearch();
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

/** Returns the bounds of the range of time in the URL. They change only with the range. */
export function useRange(): { since: string; until: string } {
  const [range] = useParam("range");
  return useMemo(() => bounds(range), [range]);
}

/** Selects the range of time of a list. */
export function RangeChoice() {
  const [range, setRange] = useParam("range");
  const all = RANGES.map(([value]) => value);
  const options = range && !all.includes(range) ? [range, ...all] : all;
  return <Choice label="Time" none="Any time" all={options} value={range} set={setRange} show={rangeLabel} />;
}

/** Selects the value of a filter in the URL. */
export function FilterChoice({ label, name, none, all, show }: { label: string; name: string; none: string; all: string[]; show?: (value: string) => string }) {
  const [value, setValue] = useParam(name);
  const options = value && !all.includes(value) ? [value, ...all] : all;
  return <Choice label={label} none={none} all={options} value={value} set={setValue} show={show} />;
}

/** Removes all filters from the URL. */
const clearFilters = () => setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])));
const FILTERS = ["search", "status", "model", "audit", "restored", "range", "kind"];

interface Props<R extends object> {
  title: string;
  list: ListState<R>;
  placeholder: string;
  filters?: ComponentChildren;
  /** Titles of an empty list: with a search text, and without. */
  none: [searched: string, never: string];
  hint?: ComponentChildren;
  draw: (rows: R[]) => ComponentChildren;
}

/** Saves the filters of the list as a view, or removes the saved view. */
function SaveView({ title }: { title: string }) {
  const { hash } = location;
  const [isStored, setStored] = useState(() => isSaved(hash));
  useEffect(() => setStored(isSaved(hash)), [hash]);
  if (!hash.includes("?")) return null;
  const toggle = () => {
    toggleView({ name: viewName(title, hash), hash });
    setStored(isSaved(hash));
  };
  return <button class="quiet" onClick={toggle} title="Saved views are in the command palette">{isStored ? "Remove saved view" : "Save view"}</button>;
}

/** A list page: header with search, rows, and a button for older rows. */
export function ListPage<R extends object>({ title, list, placeholder, filters, none, hint, draw }: Props<R>) {
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
      {rows && !rows.length && list.isSearched ? (
        <Empty title={none[0]}>
          <button onClick={clearFilters}>Clear all filters</button>
        </Empty>
      ) : null}
      {rows && !rows.length && !list.isSearched ? <Empty title={none[1]}>{hint}</Empty> : null}
      {rows?.length ? draw(rows) : null}
      {rows?.length ? (
        <div class="actions">
          {loadOlder ? (
            <button onClick={loadOlder} disabled={isBusy}>
              {isBusy ? "Loading…" : `Load older ${noun}`}
            </button>
          ) : null}
          <SaveView title={title} />
          <button class="quiet" onClick={() => save(`${noun.toLowerCase()}.csv`, new Blob([toCsv(rows)], { type: "text/csv" }))}>Save {count(rows.length)} rows as CSV</button>
          <button class="quiet" onClick={() => save(`${noun.toLowerCase()}.json`, new Blob([JSON.stringify(rows, null, 2)], { type: "application/json" }))}>Save as JSON</button>
        </div>
      ) : loadOlder ? (
        <div class="actions">
          <button onClick={loadOlder} disabled={isBusy}>{isBusy ? "Searching…" : `Search older ${noun}`}</button>
        </div>
      ) : null}
    </>
  );
}
