/** Keys, usage and cost. */

import { useMemo } from "preact/hooks";
import { compact, count, dollars, plain } from "../format";
import { useFetch, useParam, useTitle } from "../hooks";
import { RangeChoice, useRange } from "../list";
import { Empty, ErrorBox, Fact, FetchStatus, Meter, PageHead, RelativeTime, Switch, Table, type Column } from "../parts";
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

const NONE = { calls: 0, input: 0, output: 0, thought: 0, cached: 0, micro_usd: 0, unpriced: 0 };
type Sum = typeof NONE;

const KEYS = Object.keys(NONE) as (keyof Sum)[];
const add = (sum: Sum, row: Hour): Sum => Object.fromEntries(KEYS.map((key) => [key, sum[key] + row[key]])) as Sum;

function sumBy(rows: Hour[], by: (row: Hour) => string): Map<string, Sum> {
  const sums = new Map<string, Sum>();
  for (const row of rows) sums.set(by(row), add(sums.get(by(row)) ?? NONE, row));
  return sums;
}

/** Sums usage by provider and model, the most expensive first. */
const sumByModel = (rows: Hour[]): [string, Sum][] =>
  [...sumBy(rows, (row) => `${row.provider} · ${row.model}`)].sort(([, a], [, b]) => b.micro_usd - a.micro_usd || b.input + b.output - a.input - a.output);

export function UsagePage() {
  useTitle("Usage");
  const usage = useFetch<{ hours: Hour[] }>("/v1/throughline/usage/hours", 5000);
  const keys = useFetch<{ keys: Key[] }>("/v1/throughline/keys", 10_000);
  const [chosen, setBy] = useParam("by");
  const by = chosen === "day" ? "day" : "hour";
  const { since, until } = useRange();
  // The hours of the server are in UTC and have the form 2026-01-31T23.
  const rows = useMemo(() => (usage.value?.hours ?? []).filter(({ hour }) => hour >= since.slice(0, 13) && (!until || hour < until.slice(0, 13))), [usage.value, since, until]);
  const total = useMemo(() => rows.reduce(add, NONE), [rows]);
  const bars = useMemo(() => series(rows, by), [rows, by]);
  return (
    <>
      <PageHead title="Usage and cost">
        <div class="filters">
          <RangeChoice />
          <Switch label="Group by" options={[["hour", "By hour"], ["day", "By day"]]} value={by} set={(value) => setBy(value === "hour" ? "" : value)} />
        </div>
      </PageHead>
      <FetchStatus state={usage} />
      {usage.value && !rows.length ? <Empty title={since ? "No usage in this range" : "No usage yet"}>This page shows tokens and cost of gateway calls and of the server's agents, by key and model. The cost of a run that <code>throughline run</code> started is shown with that run.</Empty> : null}
      {rows.length ? (
        <>
          <dl class="strip large">
            <Fact name="Calls">{count(total.calls)}</Fact>
            <Fact name="Input tokens" more={total.cached ? `${compact(total.cached)} cached` : undefined}>{compact(total.input)}</Fact>
            <Fact name="Output tokens" more={total.thought ? `${compact(total.thought)} reasoning` : undefined}>{compact(total.output)}</Fact>
            <Fact name="Cost" more={total.unpriced ? `${count(total.unpriced)} calls without a price` : undefined}>{dollars(total.micro_usd / 1e6)}</Fact>
          </dl>
          <div class="plots">
            <Bars title="Tokens" bars={bars.map(({ at, sum }) => ({ at, parts: [sum.input, sum.output] }))} names={["input", "output"]} show={compact} isCount />
            {total.micro_usd ? <Bars title="Cost" bars={bars.map(({ at, sum }) => ({ at, parts: [sum.micro_usd / 1e6] }))} names={["cost"]} show={dollars} /> : null}
          </div>
          <section>
            <h2>By model</h2>
            <Table rows={sumByModel(rows)} columns={COLUMNS} />
          </section>
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
        <div class="cards">{keys.value?.keys.map((one) => <KeyCard key={one.id} one={one} used={(usage.value?.hours ?? []).filter((row) => row.key === one.id).reduce(add, NONE)} />)}</div>
      </section>
    </>
  );
}

function series(rows: Hour[], by: "hour" | "day"): { at: string; sum: Sum }[] {
  if (!rows.length) return [];
  const length = by === "hour" ? 13 : 10;
  const step = by === "hour" ? 3_600_000 : 86_400_000;
  const sums = sumBy(rows, (row) => row.hour.slice(0, length));
  const time = (at: string) => Date.parse(by === "hour" ? `${at}:00:00Z` : `${at}T00:00:00Z`);
  const times = [...sums.keys()].map(time);
  const last = Math.max(...times);
  const first = Math.max(Math.min(...times), last - 71 * step);
  const all = [];
  for (let at = Math.min(first, last - 11 * step); at <= last; at += step) {
    const name = new Date(at).toISOString().slice(0, length);
    all.push({ at: by === "hour" ? `${name.slice(11)}:00` : name.slice(5), sum: sums.get(name) ?? NONE });
  }
  return all;
}

const COLUMNS: Column<[string, Sum]>[] = [
  ["Model", ([name]) => <bdi>{plain(name)}</bdi>],
  ["Calls", ([, sum]) => count(sum.calls), "number"],
  ["Input tokens", ([, sum]) => compact(sum.input), "number"],
  ["Output tokens", ([, sum]) => compact(sum.output), "number"],
  ["Reasoning tokens", ([, sum]) => compact(sum.thought), "number"],
  ["Cost", ([, sum]) => (sum.unpriced === sum.calls ? "no price" : dollars(sum.micro_usd / 1e6)), "number"],
];

function KeyCard({ one, used }: { one: Key; used: Sum }) {
  const { limits } = one;
  return (
    <article class="card" aria-label={`Key ${plain(one.label)}`}>
      <header>
        <strong><bdi>{plain(one.label)}</bdi></strong>
        <code>{plain(one.id)}</code>
        {one.revoked ? <span class="tag bad">revoked</span> : <span class="tag good">active</span>}
      </header>
      <p class="dim">
        created <RelativeTime at={one.created} />
        {limits.models?.length ? ` · ${limits.models.map(plain).join(" ")}` : " · every model"}
        {limits.requests_per_minute ? ` · ${limits.requests_per_minute} per minute` : ""}
      </p>
      {limits.budget_micro_usd ? <Meter label="Budget" used={used.micro_usd} allowed={limits.budget_micro_usd} shown={`${dollars(used.micro_usd / 1e6)} of ${dollars(limits.budget_micro_usd / 1e6)}`} /> : null}
      {limits.budget_tokens ? <Meter label="Tokens" used={used.input + used.output} allowed={limits.budget_tokens} shown={`${compact(used.input + used.output)} of ${compact(limits.budget_tokens)}`} /> : null}
      {!limits.budget_micro_usd && !limits.budget_tokens ? (
        <p class="number">
          {count(used.calls)} calls · {compact(used.input + used.output)} tokens · {dollars(used.micro_usd / 1e6)}
        </p>
      ) : null}
    </article>
  );
}
