/** Runs: a live list with search. */

import { useEffect, useState } from "preact/hooks";
import { compact, dollars, plain } from "../format";
import { useNow, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Choice, FateCounts, RelativeTime, Status, Table, TitleCell, type Column } from "../parts";
import type { RunRow } from "../types";

const STATUSES = ["running", "waiting", "completed", "failed", "cancelled"];

export function RunsPage() {
  useTitle("Runs");
  const [status, setStatus] = useState("");
  const [model, setModel] = useState("");
  const list = useList<RunRow>("/v1/throughline/runs", "runs", 2000, { status, model });
  const [models, setModels] = useState<string[]>([]);
  useEffect(() => {
    const names = new Set(models);
    list.rows?.forEach((run) => run.models.forEach((name) => names.add(name)));
    if (names.size !== models.length) setModels([...names].sort());
  }, [list.rows]);
  const filters = (
    <>
      <Choice label="Status" none="Any status" all={STATUSES} value={status} set={setStatus} />
      <Choice label="Model" none="Any model" all={models} value={model} set={setModel} />
    </>
  );
  const hint = (
    <>
      Start a run with <code>throughline run "What is the time?" --model sim/claude-sonnet-5-5 --tool now=date</code>, or over the API.
    </>
  );
  return <ListPage title="Runs" list={list} placeholder="Search titles, ids, models" filters={filters} none={["No matching runs", "No runs yet"]} hint={hint} draw={(runs) => <RunTable runs={runs} />} />;
}

export function RunTable({ runs }: { runs: RunRow[] }) {
  const now = useNow(5000);
  const columns: Column<RunRow>[] = [
    ["Run", ({ id, title, gone }) => <TitleCell page="run" id={id} title={title ?? (gone ? `Erased: ${gone}` : "Untitled run")} />, "title"],
    ["Status", (run) => <Status status={run.status} />],
    ["Model", (run) => <Models models={run.models} />],
    ["Turns", (run) => compact(run.turns), "number"],
    ["Thoughts", (run) => <FateCounts thoughts={run.thoughts} />, undefined, "kept / restored / elided"],
    ["Tokens", ({ tokens }) => (tokens ? compact(tokens.totalTokens ?? (tokens.inputTokens ?? 0) + (tokens.outputTokens ?? 0)) : "–"), "number"],
    ["Cost", (run) => dollars(run.cost_usd), "number"],
    ["Updated", (run) => <RelativeTime at={run.updated} now={now} />, "number dim"],
  ];
  return <Table rows={runs} columns={columns} id={(run) => run.id} />;
}

function Models({ models }: { models: string[] }) {
  if (!models.length) return <span class="dim">–</span>;
  const [first, ...rest] = models;
  return (
    <span class="models" title={models.map(plain).join(", ")}>
      <bdi>{plain(first!.slice(first!.indexOf("/") + 1))}</bdi>
      {rest.length ? <small>+{rest.length}</small> : null}
    </span>
  );
}
