/** The command palette: opens pages, objects by id or title, and actions with the keyboard. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { plain } from "./format";
import { to } from "./hooks";
import type { CallRow, RunRow, ThreadRow } from "./types";

/** An entry of the palette: a link or an action. */
export interface Command {
  name: string;
  /** What the entry is, such as a page or a run. */
  kind: string;
  href?: string;
  act?: () => void;
}

/** Number of objects of each kind that a search shows. */
const MATCHES = 5;

/** Returns the page of an object, derived from the form of its id. */
function pageOfId(text: string): string | null {
  if (/^run_\w+$/.test(text)) return "run";
  if (/^(thread_|conversation-|agent-|conv-)[\w-]+$/.test(text)) return "thread";
  return /^[A-Za-z0-9]{15}$/.test(text) ? "call" : null;
}

/** Searches the titles and ids of runs, Threads and calls. */
async function search(text: string, signal: AbortSignal): Promise<Command[]> {
  const query = new URLSearchParams({ search: text, limit: String(MATCHES) });
  const load = <R,>(name: string) => get<Record<string, R[]>>(`/v1/throughline/${name}?${query}`, signal).then((page) => (page[name] ?? []).slice(0, MATCHES));
  const [runs, threads, calls] = await Promise.all([load<RunRow>("runs"), load<ThreadRow>("threads"), load<CallRow>("calls")]);
  return [
    ...runs.map(({ id, title }) => ({ name: title ?? id, kind: "Run", href: to("run", id) })),
    ...threads.map(({ id, title }) => ({ name: title ?? id, kind: "Thread", href: to("thread", id) })),
    ...calls.map((call) => ({ name: `${call.title ?? call.id} · ${call.target?.model ?? call.model ?? ""}`, kind: "Call", href: to("call", call.id) })),
  ];
}

/** Searches while the user types; a failed search finds nothing. */
function useMatches(text: string): Command[] {
  const [found, setFound] = useState<Command[]>([]);
  useEffect(() => {
    setFound([]);
    if (text.length < 2) return;
    const stop = new AbortController();
    const timer = setTimeout(() => search(text, stop.signal).then(setFound, () => {}), 200);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [text]);
  return found;
}

export function Palette({ commands, close }: { commands: Command[]; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(0);
  const trimmed = text.trim();
  const matches = useMatches(trimmed);
  const entries = useMemo(() => {
    const page = pageOfId(trimmed);
    const direct: Command[] = page ? [{ name: `Open ${trimmed}`, kind: page, href: to(page, trimmed) }] : [];
    const own = commands.filter((command) => command.name.toLowerCase().includes(trimmed.toLowerCase()));
    return [...direct, ...own, ...matches];
  }, [trimmed, commands, matches]);
  const at = Math.min(selected, entries.length - 1);
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => dialog.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);

  const open = (command: Command | undefined) => {
    if (!command) return;
    dialog.current?.close();
    if (command.href) location.hash = command.href;
    command.act?.();
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setSelected((at + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter") open(entries[at]);
    else return;
    event.preventDefault();
  };
  const type = (value: string) => {
    setText(value);
    setSelected(0);
  };
  return (
    <dialog ref={dialog} class="palette" onClose={close} aria-label="Command palette">
      <input
        role="combobox"
        aria-label="Search pages, runs, Threads and calls"
        aria-expanded="true"
        aria-controls="palette-entries"
        aria-activedescendant={entries.length ? `palette-${at}` : undefined}
        placeholder="Search pages, titles, ids"
        value={text}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={press}
      />
      <ul id="palette-entries" role="listbox" aria-label="Matches">
        {entries.map((command, index) => (
          <li id={`palette-${index}`} role="option" aria-selected={index === at} onClick={() => open(command)} onMouseMove={() => setSelected(index)}>
            <bdi>{plain(command.name)}</bdi>
            <span class="tag">{command.kind}</span>
          </li>
        ))}
      </ul>
      {entries.length ? null : <p class="dim">No match. Search for a page, a title or an id.</p>}
    </dialog>
  );
}
