/** Threads: the conversations of agents and clients. */

import { bytes, compact, plain } from "../format";
import { to, useFetch, useNow, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Empty, Id, Loading, ErrorBox, RelativeTime } from "../parts";
import type { CallRow, RunRow, ThreadRow } from "../types";
import { CallTable } from "./calls";
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
      none={["No matching threads", "No threads yet"]}
      hint="Every conversation through the gateway and every agent run has a thread."
      draw={(threads) => <ThreadTable threads={threads} />}
    />
  );
}

function ThreadTable({ threads }: { threads: ThreadRow[] }) {
  const now = useNow();
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            <th>Thread</th>
            <th>Kind</th>
            <th class="number">Records</th>
            <th class="number">Size</th>
            <th>Map</th>
            <th class="number">Updated</th>
          </tr>
        </thead>
        <tbody>
          {threads.map((thread) => (
            <tr key={thread.id}>
              <td class="title">
                <a href={to("thread", thread.id)}>
                  <bdi>{plain(thread.title ?? (thread.gone ? `Erased: ${thread.gone}` : "Untitled thread"))}</bdi>
                </a>
                <Id id={thread.id} />
              </td>
              <td data-label="Kind">
                <span class="tag">{KINDS[thread.kind]}</span>
              </td>
              <td data-label="Records" class="number">
                {compact(thread.records)}
              </td>
              <td data-label="Size" class="number">
                {bytes(thread.bytes)}
              </td>
              <td data-label="Map">
                <a href={to("map", thread.id)} aria-label={`Thought map of ${plain(thread.title ?? thread.id)}`}>
                  Thought map
                </a>
              </td>
              <td data-label="Updated" class="number dim">
                <RelativeTime at={thread.updated} now={now} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function ThreadPage({ thread }: { thread: string }) {
  const { value, problem, reload } = useFetch<ThreadRow & { runs: RunRow[]; calls: CallRow[] }>(`/v1/throughline/threads/${encodeURIComponent(thread)}`, 3000);
  useTitle(value?.title ?? "Thread");
  if (problem && !value) return <ErrorBox problem={problem} reload={reload} />;
  if (!value) return <Loading />;
  return (
    <>
      <header class="head">
        <div>
          <p class="crumbs">
            <a href={to("threads")}>Threads</a> <Id id={thread} />
          </p>
          <h1>
            <bdi>{plain(value.title ?? (value.gone ? "Erased thread" : "Untitled thread"))}</bdi>
          </h1>
        </div>
        <a class="button" href={to("map", thread)}>
          Thought map
        </a>
      </header>
      {value.gone ? <p class="callout">The content of this thread was erased: {plain(value.gone)}.</p> : null}
      {value.runs.length ? (
        <section aria-labelledby="runs">
          <h2 id="runs">Runs</h2>
          <RunTable runs={value.runs} />
        </section>
      ) : null}
      {value.calls.length ? (
        <section aria-labelledby="calls">
          <h2 id="calls">Calls</h2>
          <CallTable calls={value.calls} />
        </section>
      ) : null}
      {!value.runs.length && !value.calls.length ? <Empty title="No runs or calls yet" /> : null}
    </>
  );
}
