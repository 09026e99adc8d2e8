/** Threads: the conversations of agents and clients. */

import { bytes, compact, plain } from "../format";
import { useEffect } from "preact/hooks";
import { to, useFetch, useNow, useParam, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Empty, FetchStatus, Id, PageHead, RelativeTime, Switch, Table, TitleCell, type Column } from "../parts";
import type { CallRow, ForkRow, RunRow, ThreadRow } from "../types";
import { CallTable, ConnectHint } from "./calls";
import { AgentConversation, Conversation } from "./conversation";
import { RunTable } from "./runs";

const KINDS = { agent: "Agent", gateway: "Gateway", kept: "Stored" };

export function ThreadsPage() {
  useTitle("Threads");
  const list = useList<ThreadRow>("/v1/throughline/threads", "threads", 5000);
  return (
    <ListPage
      title="Threads"
      list={list}
      placeholder="Search titles and ids"
      none={["No matching Threads", "No Threads yet"]}
      hint={<><p>Every conversation through the gateway and every agent run has a Thread.</p><ConnectHint /></>}
      draw={(threads) => <ThreadTable threads={threads} />}
    />
  );
}

function ThreadTable({ threads }: { threads: ThreadRow[] }) {
  const now = useNow();
  const columns: Column<ThreadRow>[] = [
    ["Thread", ({ id, title, gone }) => <TitleCell page="thread" id={id} title={title ?? (gone ? `Erased: ${gone}` : "Untitled Thread")} />, "title"],
    ["Kind", (thread) => <span class="tag">{KINDS[thread.kind]}</span>],
    ["Records", (thread) => compact(thread.records), "number", undefined, (thread) => thread.records],
    ["Size", (thread) => bytes(thread.bytes), "number", undefined, (thread) => thread.bytes],
    ["Map", ({ id, title }) => <a href={to("map", id)} aria-label={`Thought map of ${plain(title ?? id)}`}>Thought map</a>],
    ["Updated", (thread) => <RelativeTime at={thread.updated} now={now} />, "number dim", undefined, (thread) => thread.updated],
  ];
  return <Table rows={threads} columns={columns} list="threads" id={(thread) => thread.id} />;
}

export function ThreadPage({ thread }: { thread: string }) {
  const state = useFetch<ThreadRow & { runs: RunRow[]; calls: CallRow[]; forks: ForkRow[] }>(`/v1/throughline/threads/${encodeURIComponent(thread)}`, 3000);
  const { value } = state;
  useTitle(value?.title ?? "Thread");
  const [shown] = useParam("call");
  const [view, setTab] = useParam("tab");
  const tab = view === "calls" ? "calls" : "chat";
  const isLoaded = value !== null;
  useEffect(() => {
    document.querySelector("tr[aria-current]")?.scrollIntoView({ block: "center" });
  }, [isLoaded, shown]);
  if (!value) return <FetchStatus state={state} />;
  return (
    <>
      <PageHead title={value.title ?? (value.gone ? "Erased Thread" : "Untitled Thread")} crumbs={[["Threads", "threads"]]} id={<Id id={thread} />}>
        <div class="actions">
          {value.calls.length ? <Switch label="View" options={[["chat", "Conversation"], ["calls", "Calls"]]} value={tab} set={(view) => setTab(view === "chat" ? "" : view)} /> : null}
          <a class="button" href={to("map", thread)}>Thought map</a>
        </div>
      </PageHead>
      {value.gone ? <p class="callout">The content of this Thread was erased: {plain(value.gone)}.</p> : null}
      {tab === "chat" && value.calls.length ? <Conversation calls={value.calls} chosen={shown} /> : null}
      {!value.calls.length && !value.gone && value.kind !== "gateway" ? <AgentConversation thread={thread} /> : null}
      {value.runs.length ? (
        <section aria-labelledby="runs">
          <h2 id="runs">Runs</h2>
          <RunTable runs={value.runs} />
        </section>
      ) : null}
      {value.calls.length && tab === "calls" ? (
        <section aria-labelledby="calls">
          <h2 id="calls">Calls</h2>
          <CallTable calls={value.calls} shown={shown} />
        </section>
      ) : null}
      <Branches thread={value} forks={value.forks} />
      {!value.runs.length && !value.calls.length && value.kind === "gateway" ? <Empty title="No calls yet">This conversation has no calls.</Empty> : null}
    </>
  );
}

/** The Threads that share a part of this Thread's history: its origin and its forks. */
function Branches({ thread, forks }: { thread: ThreadRow; forks: ForkRow[] }) {
  const now = useNow();
  const origin = thread.forked_from ? [{ id: thread.forked_from, kind: "origin" }] : [];
  const rows: (Partial<ForkRow> & { id: string; kind: string })[] = [...origin, ...forks.map((fork) => ({ ...fork, kind: "branch" }))];
  if (!rows.length) return null;
  const columns: Column<(typeof rows)[number]>[] = [
    ["Thread", ({ id, kind }) => <TitleCell page="thread" id={id} title={kind === "origin" ? "The Thread that this one branches from" : "Branch of this Thread"} />, "title"],
    ["Shared records", ({ at }) => (at === undefined ? <span class="dim">–</span> : compact(at)), "number"],
    ["Updated", ({ updated }) => (updated ? <RelativeTime at={updated} now={now} /> : <span class="dim">–</span>), "number dim"],
  ];
  return (
    <section aria-labelledby="branches">
      <h2 id="branches">Branches</h2>
      <p class="hint">If a client continues a conversation from an earlier message, the continuation becomes a Thread of its own, which shares the messages before.</p>
      <Table rows={rows} columns={columns} id={(row) => row.id} />
    </section>
  );
}
