/** Runs: a live list with search. */

import { compact, dollars, duration, plain } from "../format";
import { useNow, useParam, useTitle } from "../hooks";
import { FilterChoice, ListPage, RangeChoice, useList, useRange } from "../list";
import { Copy, FateCounts, RelativeTime, Status, Table, TitleCell, type Column } from "../parts";
import type { RunRow } from "../types";
import { useNames } from "./calls";

const STATUSES = ["running", "waiting", "completed", "failed", "cancelled", "interrupted"];

export function RunsPage() {
  useTitle("Runs");
  const [status] = useParam("status");
  const [model] = useParam("model");
  const list = useList<RunRow>("/v1/throughline/runs", "runs", 2000, { status, model, ...useRange() });
  const models = useNames(list.rows, (run) => run.models);
  const filters = (
    <>
      <FilterChoice label="Status" name="status" none="Any status" all={STATUSES} />
      <FilterChoice label="Model" name="model" none="Any model" all={models} />
      <RangeChoice />
    </>
  );
  const command = `throughline run "What is the time?" --model sim/claude-sonnet-5-5 --tool now=date`;
  const hint = (
    <>
      <p>Runs are agents that Throughline drives. Calls of your own clients are on the page Calls. Start a run with this command, or over the API:</p>
      <pre class="command">{command}</pre>
      <Copy text={command} label="Copy command" />
    </>
  );
  return <ListPage title="Runs" list={list} placeholder="Search titles, ids, models" filters={filters} none={["No matching runs", "No runs yet"]} hint={hint} draw={(runs) => <RunTable runs={runs} list="runs" />} />;
}

export function RunTable({ runs, list }: { runs: RunRow[]; list?: string }) {
  const now = useNow(5000);
  const columns: Column<RunRow>[] = [
    ["Run", ({ id, title, gone }) => <TitleCell page="run" id={id} title={title ?? (gone ? `Erased: ${gone}` : "Untitled run")} />, "title"],
    ["Status", (run) => <Status status={run.interrupted ? "interrupted" : run.status} />],
    ["Model", (run) => <Models models={run.models} />],
    ["Turns", (run) => compact(run.turns), "number", undefined, (run) => run.turns],
    ["Thoughts", (run) => <FateCounts thoughts={run.thoughts} />, undefined, "kept / restored / elided"],
    ["Tokens", ({ tokens }) => (tokens ? compact(tokens.totalTokens ?? (tokens.inputTokens ?? 0) + (tokens.outputTokens ?? 0)) : "–"), "number", undefined, ({ tokens }) => tokens?.totalTokens ?? -1],
    ["Cost", (run) => dollars(run.cost_usd), "number", undefined, (run) => run.cost_usd ?? -1],
    ["Duration", (run) => duration(elapsed(run, now)), "number", undefined, (run) => elapsed(run, now)],
    ["Updated", (run) => <RelativeTime at={run.updated} now={now} />, "number dim", undefined, (run) => run.updated],
  ];
  return <Table rows={runs} columns={columns} list={list} id={(run) => run.id} />;
}

/** Time in milliseconds from the start of a run to its last event, or to now while it is running. */
export function elapsed(run: { created: string; updated?: string; status: string; interrupted?: boolean }, now: number): number {
  const isRunning = run.status === "running" && !run.interrupted;
  const end = isRunning || !run.updated ? now : Date.parse(run.updated);
  return Math.max(0, end - Date.parse(run.created));
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
