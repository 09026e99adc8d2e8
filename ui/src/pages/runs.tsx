/** Runs: a live list, in which one can search. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { compact, dollars, plain } from "../format";
import { to, useAnswer, useNow, useTitle } from "../hooks";
import { Empty, Id, Loading, Status, Tally, Trouble, When } from "../parts";
import type { RunRow } from "../types";

const STATUSES = ["running", "waiting", "completed", "failed", "cancelled"];

export function RunsPage() {
  useTitle("Runs");
  const [words, setWords] = useState("");
  const [search, setSearch] = useState("");
  const [status, setStatus] = useState("");
  const [model, setModel] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSearch(words.trim()), 200);
    return () => clearTimeout(timer);
  }, [words]);
  const query = new URLSearchParams({ limit: "100" });
  if (search) query.set("search", search);
  if (status) query.set("status", status);
  if (model) query.set("model", model);
  const { value, problem, again } = useAnswer<{ runs: RunRow[]; next?: string }>(`/v1/throughline/runs?${query}`, 2000);
  const [models, setModels] = useState<string[]>([]);
  useEffect(() => {
    const seen = new Set(models);
    value?.runs.forEach((run) => run.models.forEach((name) => seen.add(name)));
    if (seen.size !== models.length) setModels([...seen].sort());
  }, [value]);
  return (
    <>
      <header class="head">
        <h1>Runs</h1>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label="Search runs" placeholder="Search titles, ids, models" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
          <select aria-label="Status" value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
            <option value="">Any status</option>
            {STATUSES.map((one) => (
              <option value={one}>{one}</option>
            ))}
          </select>
          <select aria-label="Model" value={model} onChange={(event) => setModel(event.currentTarget.value)}>
            <option value="">Any model</option>
            {models.map((one) => (
              <option value={one}>{plain(one)}</option>
            ))}
          </select>
        </form>
      </header>
      {problem ? <Trouble problem={problem} again={again} /> : null}
      {!value && !problem ? <Loading /> : null}
      {value ? <RunTable runs={value.runs} none={search || status || model ? "No run fits" : "No runs yet"} /> : null}
      {value?.next ? <p class="hint">There are more: search, or choose a status.</p> : null}
    </>
  );
}

export function RunTable({ runs, none }: { runs: RunRow[]; none: string }) {
  const now = useNow(5000);
  const rows = useMemo(() => runs, [runs]);
  if (!rows.length) {
    return (
      <Empty title={none}>
        Begin one with <code>throughline run "What is the time?" --model sim/claude-sonnet-4-5 --tool now=date</code>, or over the API.
      </Empty>
    );
  }
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
          {rows.map((run) => (
            <tr key={run.id}>
              <td class="title">
                <a href={to("run", run.id)}>
                  <bdi>{plain(run.title ?? (run.gone ? `no more: ${run.gone}` : "A run without words"))}</bdi>
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
                <Tally thoughts={run.thoughts} />
              </td>
              <td data-label="Tokens" class="number">
                {run.tokens ? compact(run.tokens.totalTokens ?? (run.tokens.inputTokens ?? 0) + (run.tokens.outputTokens ?? 0)) : "–"}
              </td>
              <td data-label="Cost" class="number">
                {dollars(run.cost_usd)}
              </td>
              <td data-label="Updated" class="number dim">
                <When at={run.updated} now={now} />
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
