/** Actions on a run: decide its pending requests, cancel, resume, fork, export, compare. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError, download, post } from "../api";
import { plain } from "../format";
import { to, useFetch } from "../hooks";
import { Confirm, Copy, ErrorBox, FetchStatus, Id } from "../parts";
import { may } from "../permissions";
import type { PendingRequest, RunHead } from "../types";
import { RequestCard } from "./inbox";

/** Shows the pending requests of a run, so that a person can decide them next to its timeline. */
export function Decisions({ run, decided }: { run: string; decided: () => void }) {
  const inbox = useFetch<{ waiting: PendingRequest[] }>(`/v1/throughline/inbox?run=${encodeURIComponent(run)}`, 2000);
  const [notice, setNotice] = useState("");
  const done = (message: string) => {
    setNotice(message);
    inbox.reload();
    decided();
  };
  return (
    <section class="decide" aria-labelledby="decide" tabIndex={-1}>
      <h2 id="decide">Waiting for a person</h2>
      <p class="notice" role="status">{notice}</p>
      {inbox.problem ? <FetchStatus state={inbox} /> : null}
      {inbox.value?.waiting.map((one) => <RequestCard key={one.id} one={one} done={done} />)}
    </section>
  );
}

interface Props {
  head: RunHead;
  /** The status as shown, which may be newer than that of `head`. */
  status: string;
  /** Reloads the status of the run. */
  changed: () => void;
}

export function RunActions({ head, status, changed }: Props) {
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [notice, setNotice] = useState<ComponentChildren>(null);
  const path = `/v1/throughline/runs/${encodeURIComponent(head.id)}`;
  const attempt = async (act: () => Promise<ComponentChildren>) => {
    setProblem(null);
    setNotice(null);
    try {
      setNotice(await act());
    } catch (error) {
      setProblem(error instanceof ApiError ? error : new ApiError(0, (error as Error).message));
    }
    changed();
  };
  const cancel = () =>
    attempt(async () => {
      await post(`${path}/cancel`, { reason: "cancelled in the console" });
      return "The run was cancelled.";
    });
  const resume = () =>
    attempt(async () => {
      await post(`${path}/resume`, {});
      return "This server continues the run.";
    });
  const fork = () =>
    attempt(async () => {
      const { id } = await post<{ id: string }>(`/v1/throughline/threads/${encodeURIComponent(head.thread)}/fork`, {});
      return <Forked thread={id} />;
    });
  const save = (query: string, name: string) => attempt(() => download(query, name).then(() => null));
  const isOpen = status === "running" || status === "waiting" || status === "interrupted";
  const lacksTools = Boolean(head.missing_tools?.length);
  return (
    <>
      <div class="actions" role="group" aria-label="Actions on this run">
        {isOpen && may("use") ? <Confirm label="Cancel run" question="Cancel this run? It cannot be resumed." yes="Cancel the run" act={cancel} /> : null}
        {status === "interrupted" && may("use") && !lacksTools ? <button class="primary" onClick={resume}>Resume here</button> : null}
        {may("use") ? <button onClick={fork} title="Creates a Thread that shares the history of this one">Fork Thread</button> : null}
        <a class="button" href={to("compare", head.id)}>Compare</a>
        {may("export") ? (
          <>
            <button class="quiet" onClick={() => save(`${path}/snapshot`, `${head.id}.snapshot.json`)} title="A document from which the run can be restored in another store">Save snapshot</button>
            <button class="quiet" onClick={() => save(`/v1/throughline/journal/export?thread=${encodeURIComponent(head.thread)}`, `${head.thread}.jsonl`)} title="The Thread and its runs as JSON lines, with secrets redacted">Export Thread</button>
          </>
        ) : null}
        <button class="quiet" onClick={() => save(`${path}/trace`, `${head.id}.trace.json`)}>Save trace</button>
      </div>
      {notice ? <div class="notice" role="status">{notice}</div> : null}
      {problem ? <ErrorBox problem={problem} /> : null}
    </>
  );
}

/** Reports a new Thread and how to continue it. */
function Forked({ thread }: { thread: string }) {
  const command = `throughline run "Continue" --thread ${thread}`;
  return (
    <>
      Created <a href={to("thread", thread)}>the Thread</a> <Id id={thread} />.{" "}
      {thread.startsWith("thread_") ? (
        <>
          Continue it with <code>{plain(command)}</code> <Copy text={command} label="Copy command" />
        </>
      ) : (
        <>Send messages to it as a conversation of its agent.</>
      )}
    </>
  );
}
