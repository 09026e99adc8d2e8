/** Runs: a live list with search. */

import { useEffect, useState } from "preact/hooks";
import { compact, dollars, plain } from "../format";
import { to, useNow, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Id, Status, FateCounts, RelativeTime } from "../parts";
import type { RunRow } from "../types";

const STATUSES = ["running", "waiting", "completed", "failed", "cancelled"];

export function RunsPage() {
  useTitle("Runs");
  const [status, setStatus] = useState("");
  const [model, setModel] = useState("");
  const list = useList<RunRow>("/v1/throughline/runs", "runs", 2000, { status, model });
  const [models, setModels] = useState<string[]>([]);
  useEffect(() => {
    const seen = new Set(models);
    list.rows?.forEach((run) => run.models.forEach((name) => seen.add(name)));
    if (seen.size !== models.length) setModels([...seen].sort());
  }, [list.rows]);
  const filters = (
    <>
      <Choice label="Status" any="Any status" all={STATUSES} value={status} set={setStatus} />
      <Choice label="Model" any="Any model" all={models} value={model} set={setModel} />
    </>
  );
  const hint = (
    <>
      Start one with <code>throughline run "What is the time?" --model sim/claude-sonnet-5-5 --tool now=date</code>, or over the API.
    </>
  );
  return <ListPage title="Runs" list={list} placeholder="Search titles, ids, models" filters={filters} none={["No matching runs", "No runs yet"]} hint={hint} draw={(runs) => <RunTable runs={runs} />} />;
}

function Choice({ label, any, all, value, set }: { label: string; any: string; all: string[]; value: string; set: (value: string) => void }) {
  return (
    <select aria-label={label} value={value} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">{any}</option>
      {all.map((one) => (
        <option value={one}>{plain(one)}</option>
      ))}
    </select>
  );
}

export function RunTable({ runs }: { runs: RunRow[] }) {
  const now = useNow(5000);
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            <th>Run</th>
            <th>Status</th>
            <th>Model</th>
            <th class="number">Turns</th>
            <th>
              Thoughts <small>kept / restored / elided</small>
            </th>
            <th class="number">Tokens</th>
            <th class="number">Cost</th>
            <th class="number">Updated</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td class="title">
                <a href={to("run", run.id)}>
                  <bdi>{plain(run.title ?? (run.gone ? `Erased: ${run.gone}` : "Untitled run"))}</bdi>
                </a>
                <Id id={run.id} />
              </td>
              <td data-label="Status">
                <Status status={run.status} />
              </td>
              <td data-label="Model">
                <Models models={run.models} />
              </td>
              <td data-label="Turns" class="number">
                {compact(run.turns)}
              </td>
              <td data-label="Thoughts">
                <FateCounts thoughts={run.thoughts} />
              </td>
              <td data-label="Tokens" class="number">
                {run.tokens ? compact(run.tokens.totalTokens ?? (run.tokens.inputTokens ?? 0) + (run.tokens.outputTokens ?? 0)) : "–"}
              </td>
              <td data-label="Cost" class="number">
                {dollars(run.cost_usd)}
              </td>
              <td data-label="Updated" class="number dim">
                <RelativeTime at={run.updated} now={now} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Models({ models }: { models: string[] }) {
  if (!models.length) return <span class="dim">–</span>;
  const [first, ...others] = models;
  return (
    <span class="models" title={models.map(plain).join(", ")}>
      <bdi>{plain(first!.slice(first!.indexOf("/") + 1))}</bdi>
      {others.length ? <small>+{others.length}</small> : null}
    </span>
  );
}
