/** Keys, usage and cost. */

import { useMemo, useState } from "preact/hooks";
import { compact, count, dollars, plain } from "../format";
import { useFetch, useTitle } from "../hooks";
import { Empty, Loading, Meter, ErrorBox, RelativeTime } from "../parts";
import { Bars } from "../plot";

interface Hour {
  hour: string;
  key?: string;
  provider: string;
  model: string;
  calls: number;
  unpriced: number;
  input: number;
  cached: number;
  output: number;
  thought: number;
  micro_usd: number;
}

interface Key {
  id: string;
  label: string;
  limits: { models?: string[]; budget_micro_usd?: number; budget_tokens?: number; requests_per_minute?: number };
  created: string;
  revoked?: string;
}

interface Sum {
  calls: number;
  input: number;
  output: number;
  thought: number;
  cached: number;
  micro: number;
  unpriced: number;
}

const none = (): Sum => ({ calls: 0, input: 0, output: 0, thought: 0, cached: 0, micro: 0, unpriced: 0 });

function add(sum: Sum, row: Hour): Sum {
  sum.calls += row.calls;
  sum.input += row.input;
  sum.output += row.output;
  sum.thought += row.thought;
  sum.cached += row.cached;
  sum.micro += row.micro_usd;
  sum.unpriced += row.unpriced;
  return sum;
}

function groupBy(rows: Hour[], by: (row: Hour) => string): [string, Sum][] {
  const sums = new Map<string, Sum>();
  for (const row of rows) sums.set(by(row), add(sums.get(by(row)) ?? none(), row));
  return [...sums].sort((a, b) => b[1].micro - a[1].micro || b[1].input + b[1].output - a[1].input - a[1].output);
}

export function UsagePage() {
  useTitle("Usage");
  const usage = useFetch<{ prices: string; hours: Hour[] }>("/v1/throughline/usage/hours", 5000);
  const keys = useFetch<{ keys: Key[] }>("/v1/throughline/keys", 10_000);
  const [by, setBy] = useState<"hour" | "day">("hour");
  const rows = usage.value?.hours ?? [];
  const total = useMemo(() => rows.reduce(add, none()), [usage.value]);
  const bars = useMemo(() => series(rows, by), [usage.value, by]);
  return (
    <>
      <header class="head">
        <h1>Usage and cost</h1>
        <div class="switch" role="group" aria-label="Group by">
          {(["hour", "day"] as const).map((one) => (
            <button aria-pressed={by === one} onClick={() => setBy(one)}>
              By {one}
            </button>
          ))}
        </div>
      </header>
      {usage.problem ? <ErrorBox problem={usage.problem} reload={usage.reload} /> : null}
      {!usage.value && !usage.problem ? <Loading /> : null}
      {usage.value && !rows.length ? <Empty title="No usage yet">This page shows tokens and cost of gateway calls and agent runs, by key and model.</Empty> : null}
      {rows.length ? (
        <>
          <dl class="strip large">
            <Fact name="Calls" value={count(total.calls)} />
            <Fact name="Tokens in" value={compact(total.input)} more={total.cached ? `${compact(total.cached)} cached` : undefined} />
            <Fact name="Tokens out" value={compact(total.output)} more={total.thought ? `${compact(total.thought)} reasoning` : undefined} />
            <Fact name="Cost" value={dollars(total.micro / 1e6)} more={total.unpriced ? `${count(total.unpriced)} calls without a price` : undefined} />
          </dl>
          <div class="plots">
            <Bars title="Tokens" bars={bars.map(({ at, sum }) => ({ at, parts: [sum.input, sum.output] }))} names={["in", "out"]} show={compact} />
            <Bars title="Cost" bars={bars.map(({ at, sum }) => ({ at, parts: [sum.micro / 1e6] }))} names={["cost"]} show={dollars} />
          </div>
          <Sums title="By model" rows={groupBy(rows, (row) => `${row.provider} · ${row.model}`)} />
        </>
      ) : null}
      <section aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        {keys.problem ? <ErrorBox problem={keys.problem} reload={keys.reload} /> : null}
        {keys.value && !keys.value.keys.length ? (
          <p class="hint">
            No keys: this gateway serves only the local machine. Create a key with <code>throughline keys create --label laptop --budget-usd 20</code>
          </p>
        ) : null}
        <div class="cards">{keys.value?.keys.map((one) => <KeyCard key={one.id} one={one} used={rows.filter((row) => row.key === one.id).reduce(add, none())} />)}</div>
      </section>
    </>
  );
}

function series(rows: Hour[], by: "hour" | "day"): { at: string; sum: Sum }[] {
  if (!rows.length) return [];
  const length = by === "hour" ? 13 : 10;
  const step = by === "hour" ? 3_600_000 : 86_400_000;
  const sums = new Map<string, Sum>();
  for (const row of rows) {
    const at = row.hour.slice(0, length);
    sums.set(at, add(sums.get(at) ?? none(), row));
  }
  const time = (at: string) => Date.parse(by === "hour" ? `${at}:00:00Z` : `${at}T00:00:00Z`);
  const last = Math.max(...[...sums.keys()].map(time));
  const first = Math.max(Math.min(...[...sums.keys()].map(time)), last - 71 * step);
  const all = [];
  for (let at = Math.min(first, last - 11 * step); at <= last; at += step) {
    const name = new Date(at).toISOString().slice(0, length);
    all.push({ at: by === "hour" ? `${name.slice(11)}:00` : name.slice(5), sum: sums.get(name) ?? none() });
  }
  return all;
}

function Fact({ name, value, more }: { name: string; value: string; more?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="number">
        {value}
        {more ? <small>{more}</small> : null}
      </dd>
    </div>
  );
}

function Sums({ title, rows }: { title: string; rows: [string, Sum][] }) {
  return (
    <section>
      <h2>{title}</h2>
      <div class="table">
        <table>
          <thead>
            <tr>
              <th>Model</th>
              <th class="number">Calls</th>
              <th class="number">In</th>
              <th class="number">Out</th>
              <th class="number">Reasoning</th>
              <th class="number">Cost</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, sum]) => (
              <tr>
                <td data-label="Model">
                  <bdi>{plain(name)}</bdi>
                </td>
                <td data-label="Calls" class="number">
                  {count(sum.calls)}
                </td>
                <td data-label="In" class="number">
                  {compact(sum.input)}
                </td>
                <td data-label="Out" class="number">
                  {compact(sum.output)}
                </td>
                <td data-label="Reasoning" class="number">
                  {compact(sum.thought)}
                </td>
                <td data-label="Cost" class="number">
                  {sum.unpriced === sum.calls ? "no price" : dollars(sum.micro / 1e6)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function KeyCard({ one, used }: { one: Key; used: Sum }) {
  const { limits } = one;
  return (
    <article class="card" aria-label={`Key ${plain(one.label)}`}>
      <header>
        <strong>
          <bdi>{plain(one.label)}</bdi>
        </strong>
        <code>{plain(one.id)}</code>
        {one.revoked ? <span class="tag bad">revoked</span> : <span class="tag good">active</span>}
      </header>
      <p class="dim">
        created <RelativeTime at={one.created} />
        {limits.models?.length ? ` · ${limits.models.map(plain).join(" ")}` : " · every model"}
        {limits.requests_per_minute ? ` · ${limits.requests_per_minute} per minute` : ""}
      </p>
      {limits.budget_micro_usd ? <Meter label="Budget" used={used.micro} allowed={limits.budget_micro_usd} shown={`${dollars(used.micro / 1e6)} of ${dollars(limits.budget_micro_usd / 1e6)}`} /> : null}
      {limits.budget_tokens ? <Meter label="Tokens" used={used.input + used.output} allowed={limits.budget_tokens} shown={`${compact(used.input + used.output)} of ${compact(limits.budget_tokens)}`} /> : null}
      {!limits.budget_micro_usd && !limits.budget_tokens ? (
        <p class="number">
          {count(used.calls)} calls · {compact(used.input + used.output)} tokens · {dollars(used.micro / 1e6)}
        </p>
      ) : null}
    </article>
  );
}
