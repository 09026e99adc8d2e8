/** Small components that many pages use. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiError } from "./api";
import { ago, bytes, count, exact, plain, shortId } from "./format";
import { currentTimeStyle, to, useParam, type FetchState } from "./hooks";
import { ColumnChooser, useHiddenColumns } from "./columns";
import { useWindow } from "./window";
import type { Evidence, Thoughts } from "./types";

/** A breadcrumb link in a page header. Without `page`, the label denotes the current page. */
export type Crumb = [label: string, page?: string, id?: string];

interface HeadProps {
  title: string;
  crumbs?: Crumb[];
  /** The id of the shown object, displayed after the breadcrumbs. */
  id?: ComponentChildren;
  lead?: string;
  /** Controls on the right. */
  children?: ComponentChildren;
}

export function PageHead({ title, crumbs, id, lead, children }: HeadProps) {
  const heading = <h1><bdi>{plain(title)}</bdi></h1>;
  return (
    <header class="head">
      {crumbs || lead ? (
        <div>
          {crumbs ? (
            <p class="crumbs">
              {crumbs.map(([label, page, ...ids]) => (page ? <a href={to(page, ...(ids as string[]))}>{label}</a> : <span>{label}</span>))}
              {id}
            </p>
          ) : null}
          {heading}
          {lead ? <p class="lead">{lead}</p> : null}
        </div>
      ) : heading}
      {children}
    </header>
  );
}

/** The class of the cells of a column. */
type CellKind = "title" | "dim" | "number" | "number dim";

/**
 * A column: its title, the content of a cell, the class of its cells, a hint in the header, and the
 * value by which rows are sorted.
 */
export type Column<R> = [title: string, cell: (row: R) => ComponentChildren, kind?: CellKind, hint?: string, sortKey?: (row: R) => number | string];

interface TableProps<R> {
  rows: R[];
  columns: Column<R>[];
  /** The name of a list whose columns the user can choose. */
  list?: string;
  label?: string;
  id?: (row: R) => string;
  attributes?: (row: R) => Record<string, string>;
  /** The id of a highlighted row, to which the page scrolls. */
  current?: string;
}

/** Sorts rows by the column that the parameter `sort` names; a minus sign reverses the order. */
function sortRows<R>(rows: R[], columns: Column<R>[], sort: string): R[] {
  const column = columns.find(([title, , , , key]) => key && title.toLowerCase() === sort.replace(/^-/, ""));
  if (!column) return rows;
  const [key, sign] = [column[4]!, sort.startsWith("-") ? -1 : 1];
  const keyed = rows.map((row): [number | string, R] => [key(row), row]);
  keyed.sort(([a], [b]) => (typeof a === "string" ? a.localeCompare(String(b)) : a - Number(b)) * sign);
  return keyed.map(([, row]) => row);
}

interface HeaderProps {
  title: string;
  sort: string;
  set: (sort: string) => void;
}

/** A column title that sorts the loaded rows: descending, ascending, then in the list's order. */
function SortButton({ title, sort, set }: HeaderProps) {
  const name = title.toLowerCase();
  const next = sort === `-${name}` ? name : sort === name ? "" : `-${name}`;
  const sign = sort === `-${name}` ? "↓" : sort === name ? "↑" : "";
  return (
    <button class="sort" onClick={() => set(next)} title="Sort the loaded rows">
      {title} <i aria-hidden="true">{sign}</i>
    </button>
  );
}

/** A table. On narrow screens, each row becomes a card whose cells show their column titles. */
export function Table<R>({ rows, columns: all, list, label, id, attributes, current }: TableProps<R>) {
  const [sort, setSort] = useParam("sort");
  const [hidden, setHidden] = useHiddenColumns(list);
  // The first column identifies the row, so it is always shown.
  const columns = all.filter(([title], index) => !index || !hidden.includes(title.toLowerCase()));
  const sorted = sortRows(rows, columns, sort);
  const { body, first, end, above, below } = useWindow(sorted.map((row, index) => id?.(row) ?? String(index)), current);
  const order = (title: string) => (sort.replace(/^-/, "") !== title.toLowerCase() ? undefined : sort.startsWith("-") ? "descending" : "ascending");
  const table = (
    <div class="table">
      <table aria-label={label} aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map(([title, , kind, hint, sortKey]) => (
              <th class={kind?.startsWith("number") ? "number" : undefined} aria-sort={sortKey ? order(title) : undefined}>
                {sortKey ? <SortButton title={title} sort={sort} set={setSort} /> : title} {hint ? <small>{hint}</small> : null}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {above ? <Spacer height={above} columns={columns.length} /> : null}
          {sorted.slice(first, end).map((row, index) => (
            <tr key={id?.(row)} data-id={id?.(row)} aria-rowindex={first + index + 2} aria-current={current && id?.(row) === current ? "true" : undefined} {...attributes?.(row)}>
              {columns.map(([title, cell, kind]) => (
                <td data-label={kind === "title" ? undefined : title} class={kind}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {below ? <Spacer height={below} columns={columns.length} /> : null}
        </tbody>
      </table>
    </div>
  );
  if (!list) return table;
  return (
    <div>
      <ColumnChooser titles={all.slice(1).map(([title]) => title)} hidden={hidden} set={setHidden} />
      {table}
    </div>
  );
}

/** Takes the place of rows that are not drawn. */
function Spacer({ height, columns }: { height: number; columns: number }) {
  return (
    <tr class="spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${height}px` }} />
    </tr>
  );
}

/** The first cell of a table row: the title as a link to the object, and the id of the object. */
export function TitleCell({ page, id, title }: { page: string; id: string; title: string }) {
  return (
    <>
      <a href={to(page, id)}><bdi>{plain(title)}</bdi></a>
      <Id id={id} isInList />
    </>
  );
}

/** A labelled value in a `dl` with the class `strip`. */
export function Fact({ name, more, hook, children }: { name: string; more?: string; hook?: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd data-count={hook}>
        {children}
        {more ? <small>{more}</small> : null}
      </dd>
    </div>
  );
}

/** Shows an error if the request failed, or a loading indicator until its data arrives. */
export function FetchStatus<T>({ state: { value, problem, reload } }: { state: FetchState<T> }) {
  return problem ? <ErrorBox problem={problem} reload={reload} /> : value === null ? <Loading /> : null;
}

/** A group of buttons of which exactly one is selected. */
export function Switch<V extends string>({ label, options, value, set }: { label: string; options: [value: V, label: string][]; value: V; set: (value: V) => void }) {
  return (
    <div class="switch" role="group" aria-label={label}>
      {options.map(([option, name]) => (
        <button aria-pressed={value === option} onClick={() => set(option)}>
          {name}
        </button>
      ))}
    </div>
  );
}

/** A drop-down list of values, with an entry for no value. */
export function Choice({ label, none, all, value, set, show = plain }: { label?: string; none: string; all: string[]; value: string; set: (value: string) => void; show?: (value: string) => string }) {
  return (
    <select aria-label={label} value={value} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">{none}</option>
      {all.map((one) => (
        <option value={one}>{show(one)}</option>
      ))}
    </select>
  );
}

/** A coloured dot and a label. */
export function Dot({ tone, title, children }: { tone: string; title?: string; children: ComponentChildren }) {
  return (
    <span class={`status ${tone}`} title={title}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

const STATUS_TONES: Record<string, string> = { running: "live", waiting: "warn", completed: "good", failed: "bad", interrupted: "warn" };

export function Status({ status }: { status: string }) {
  return <Dot tone={STATUS_TONES[status] ?? "dim"}>{plain(status)}</Dot>;
}

/** The Fate of a Thought or Seal, shown as a mark. */
export type SealState = "sealed" | "intact" | "restored" | "reshaped" | "foreign" | "elided" | "forgotten" | "open";

const SEALS: Record<SealState, [sign: string, label: string]> = {
  sealed: ["◆", "sealed"],
  intact: ["◆", "intact"],
  restored: ["↺", "restored"],
  reshaped: ["≈", "reshaped"],
  foreign: ["◇", "foreign"],
  elided: ["×", "elided"],
  forgotten: ["∅", "forgotten"],
  open: ["○", "not sealed"],
};

export function sealState(fate: string | undefined): SealState {
  if (fate === undefined) return "sealed";
  if (fate.startsWith("kept")) return "intact";
  if (fate.startsWith("restored")) return "restored";
  if (fate.startsWith("reshaped")) return "reshaped";
  if (fate.startsWith("elided: foreign")) return "foreign";
  if (/forgotten|retention|expired/.test(fate)) return "forgotten";
  return "elided";
}

export function Seal({ state, why, size, times }: { state: SealState; why?: string; size?: number; times?: number }) {
  const [sign, label] = SEALS[state];
  return (
    <span class={`seal ${state}`} title={why ? plain(why) : undefined}>
      <i aria-hidden="true">{sign}</i>
      {times ? `${count(times)} ${label}` : label}
      {size ? <small>{bytes(size)}</small> : null}
    </span>
  );
}

/** Shows how many Thoughts were kept, restored and elided. */
export function FateCounts({ thoughts }: { thoughts: Thoughts }) {
  const { kept, restored, reshaped, elided } = thoughts;
  if (!kept && !restored && !reshaped && !elided) {
    return <span class="dim">{thoughts.received ? `${count(thoughts.received)} new` : "–"}</span>;
  }
  return (
    <span class="tally" role="group" aria-label={`${kept} kept, ${restored} restored, ${elided} elided`}>
      <span class="kept" title="kept: sent back unchanged">{count(kept)}</span>
      <span class={restored ? "restored" : "none"} title="restored: the client had dropped these Thoughts">{count(restored)}</span>
      <span class={elided ? "elided" : "none"} title="elided: left out of the request, but still stored">{count(elided)}</span>
    </span>
  );
}

/** A relative or absolute time, as selected for the whole console. The tooltip has the other one. */
export function RelativeTime({ at, now }: { at: string; now?: number }) {
  const isRelative = currentTimeStyle() === "relative";
  return (
    <time dateTime={at} title={isRelative ? exact(at) : ago(at, now)}>{isRelative ? ago(at, now) : exact(at)}</time>
  );
}

/** A relative time together with the date and time. */
export function FullTime({ at }: { at: string }) {
  return (
    <time dateTime={at}>
      {exact(at)} <small>{ago(at)}</small>
    </time>
  );
}

/**
 * A shortened id with a button that copies it; the tooltip has the whole id. In lists, the key `c`
 * copies the id of the focused row, so the button is not a tab stop there.
 */
export function Id({ id, isInList }: { id: string; isInList?: boolean }) {
  const [isDone, copy] = useCopy();
  const label = isDone ? "Copied" : `Copy ${plain(id)}`;
  return (
    <span class="id">
      <code title={plain(id)}>{plain(shortId(id))}</code>
      <button class={isDone ? "copy done" : "copy"} onClick={() => copy(id)} aria-label={label} title={label} tabIndex={isInList ? -1 : undefined}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d={isDone ? "M3 8.5 6.5 12 13 4.5" : "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7"} />
        </svg>
      </button>
    </span>
  );
}

/** The logo of Throughline: a line with a seal on it. */
export function Emblem() {
  return (
    <svg viewBox="0 0 120 40" aria-hidden="true">
      <path d="M4 28c20 0 20-18 56-18s36 18 56 18" />
      <circle cx="60" cy="10" r="4" />
    </svg>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Emblem />
      <h2>{title}</h2>
      {children ? <div>{children}</div> : null}
    </div>
  );
}

export function ErrorBox({ problem, reload }: { problem: ApiError; reload?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <strong>{problem.status === 404 ? "Not found" : "Request failed"}</strong>
      <span>{plain(problem.message)}</span>
      {reload ? <button onClick={reload}>Try again</button> : null}
    </div>
  );
}

export function Loading() {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      <i />
      <i />
      <i />
    </div>
  );
}

export function Meter({ label, used, allowed, shown }: { label: string; used: number; allowed: number; shown: string }) {
  const share = allowed > 0 ? Math.min(1, used / allowed) : 1;
  const tone = share >= 1 ? "full" : share > 0.8 ? "near" : "";
  return (
    <div class="meter">
      <div>
        <span>{label}</span>
        <span class="number">{shown}</span>
      </div>
      <div class={`bar ${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={allowed} aria-valuenow={Math.min(used, allowed)}>
        <i style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  );
}

/** Shortens a text to `limit` characters and `most` lines. */
function shorten(text: string, limit: number, most: number): string {
  const begin = text.length > limit ? text.slice(0, limit) : text;
  const lines = begin.split("\n", most + 1);
  return lines.length > most ? lines.slice(0, most).join("\n") : begin;
}

/** Maximum number of lines of a collapsed text. */
const MAX_LINES = 14;

/** Shows an untrusted text, collapsed if it is long. It is never interpreted as markup. */
export function LongText({ text, limit = 1600, lines = MAX_LINES, mono }: { text: string; limit?: number; lines?: number; mono?: boolean }) {
  const [open, setOpen] = useState(false);
  const full = plain(text);
  const part = shorten(full, limit, lines);
  return (
    <div class={mono ? "long-text mono" : "long-text"}>
      <bdi>{open || part === full ? full : `${part}…`}</bdi>
      {part !== full ? (
        <button class="more" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? "Show less" : `Show all ${count(full.length)} characters`}
        </button>
      ) : null}
    </div>
  );
}

export function Sources({ evidence }: { evidence: Evidence[] }) {
  return (
    <ul class="sources">
      {evidence.map((one) => (
        <li>
          <span class="tag">{one.kind}</span>
          {one.url && /^https:\/\//.test(one.url) ? (
            <a href={one.url} rel="noreferrer noopener" target="_blank">
              {one.url.replace(/^https:\/\//, "")}
            </a>
          ) : (
            <span>{plain(one.source ?? one.url ?? "")}</span>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Copies a text. Without a secure connection, browsers offer only the older command. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** Returns whether a text was copied within the last moments, and a function that copies a text. */
export function useCopy(): [isDone: boolean, copy: (text: string) => void] {
  const [isDone, setDone] = useState(false);
  const copy = async (text: string) => {
    setDone(await copyText(text));
    setTimeout(() => setDone(false), 1500);
  };
  return [isDone, copy];
}

interface ConfirmProps {
  label: string;
  question: string;
  /** Label of the button that performs the action. */
  yes: string;
  act: () => Promise<void> | void;
  disabled?: boolean;
}

/** A button whose action must be confirmed with a second button. */
export function Confirm({ label, question, yes, act, disabled }: ConfirmProps) {
  const [asks, setAsks] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const perform = async () => {
    setBusy(true);
    await act();
    setBusy(false);
    setAsks(false);
  };
  if (!asks) return <button disabled={disabled} onClick={() => setAsks(true)}>{label}</button>;
  return (
    <span class="confirm" role="group" aria-label={question}>
      <span>{question}</span>
      <button class="danger" disabled={isBusy} onClick={perform} ref={(button) => button?.focus()}>{yes}</button>
      <button disabled={isBusy} onClick={() => setAsks(false)}>Back</button>
    </span>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isDone, copy] = useCopy();
  return (
    <button class="quiet" onClick={() => copy(text)}>
      {isDone ? "Copied" : label}
    </button>
  );
}
