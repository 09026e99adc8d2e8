/** The overview: calls, errors, latencies, cost and restored Thoughts, in total and by day. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Chart } from "../chart";
import { compact, count, dollars, duration, percent, plain } from "../format";
import { to, toList, useFetch, useParam, useTitle } from "../hooks";
import { Empty, FetchStatus, PageHead, Switch } from "../parts";
import { bounds } from "../range";
import type { CallRow, PendingRequest, RunRow } from "../types";
import { CallTable, ConnectHint } from "./calls";
import { RunTable } from "./runs";

interface Numbers {
  calls: number;
  unpriced: number;
  input: number;
  cached: number;
  written: number;
  output: number;
  thought: number;
  micro_usd: number;
  cache_saved_micro_usd: number;
  recorded: number;
  failed: number;
  restored: number;
  restored_calls: number;
  rejections_avoided: number;
  /** Calls whose original request the server has not audited yet. */
  rejections_unchecked: number;
  first_byte_p50?: number;
  first_byte_p95?: number;
  duration_p50?: number;
  duration_p95?: number;
}

interface Overview {
  complete: boolean;
  /** Whether the server has not read all calls of the range yet. */
  reading: boolean;
  total: Numbers;
  days: (Numbers & { day: string })[];
}

const DAYS: [value: string, label: string][] = [["1d", "Today"], ["7d", "7 days"], ["30d", "30 days"], ["90d", "90 days"]];
const USUAL = "7d";
const DAY = 86_400_000;

/** Milliseconds until the page fetches the overview again. */
const refreshTime = (overview: Overview | null) => (overview?.reading ? 1000 : 5000);

/** Number of failed calls and of runs on the page. */
const RECENT = 5;

export function OverviewPage() {
  useTitle("Overview");
  const [chosen, setRange] = useParam("range");
  const range = DAYS.some(([value]) => value === chosen) ? chosen : USUAL;
  const { since } = useMemo(() => bounds(range), [range]);
  const state = useFetch<Overview>(`/v1/throughline/overview?${new URLSearchParams({ since })}`, refreshTime);
  const total = state.value?.total;
  const isEmpty = total && !total.calls && !total.recorded;
  return (
    <>
      <PageHead title="Overview">
        <Switch label="Range" options={DAYS} value={range} set={(value) => setRange(value === USUAL ? "" : value)} />
      </PageHead>
      <FetchStatus state={state} />
      {isEmpty ? <Empty title={range === "90d" ? "No calls yet" : "No calls in this range"}><ConnectHint /></Empty> : null}
      {state.value && !isEmpty ? <Figures overview={state.value} range={range} since={since} /> : null}
      <Attention range={range} since={since} />
    </>
  );
}

interface FigureProps {
  name: string;
  value: string;
  more?: ComponentChildren;
  href?: string;
  tone?: "good" | "bad";
  hook: string;
}

function Figure({ name, value, more, href, tone, hook }: FigureProps) {
  return (
    <div class="figure">
      <dt>{href ? <a href={href}>{name}</a> : name}</dt>
      <dd class={tone}>
        <span data-figure={hook}>{value}</span>
        {more ? <small>{more}</small> : null}
      </dd>
    </div>
  );
}

const micros = (time: number | undefined) => (time === undefined ? "–" : duration(time / 1000));

function Figures({ overview, range, since }: { overview: Overview; range: string; since: string }) {
  const { total } = overview;
  const days = useMemo(() => everyDay(overview.days, since), [overview, since]);
  const names = days.map((one) => one.day);
  const pick = (value: (one: Numbers) => number | undefined, scale = 1) => days.map(({ numbers }) => (numbers ? ((value(numbers) ?? null) === null ? null : value(numbers)! / scale) : null));
  const list = (params: Record<string, string>) => toList("calls", { range, ...params });
  const openDay = (params: Record<string, string> = {}) => (day: string) => (location.hash = toList("calls", { range: day, ...params }));
  const saved = total.cache_saved_micro_usd / 1e6;
  return (
    <>
      {overview.complete ? null : <p class="callout">{overview.reading ? `Loading: ${count(total.recorded)} calls so far.` : "There are more calls than this page reads."} Errors, latencies and restored Thoughts cover only the most recently active conversations.</p>}
      <dl class="figures">
        <Figure hook="restored" name="Thoughts restored" value={count(total.restored)} tone={total.restored ? "good" : undefined} more={`in ${count(total.restored_calls)} calls whose client had dropped them`} href={list({ restored: "true" })} />
        <Figure hook="avoided" name="Rejections avoided" value={count(total.rejections_avoided)} tone={total.rejections_avoided ? "good" : undefined} more={total.rejections_unchecked ? `${count(total.rejections_unchecked)} calls not checked yet` : "requests that the provider rejects as sent"} href={list({ restored: "true" })} />
        <Figure hook="calls" name="Calls answered" value={count(total.calls)} more={total.unpriced ? `${count(total.unpriced)} without a price` : undefined} href={list({})} />
        <Figure hook="failed" name="Errors" value={count(total.failed)} tone={total.failed ? "bad" : undefined} more={`${percent(total.failed, total.recorded)} of gateway calls`} href={list({ status: "failed" })} />
        <Figure hook="first-byte" name="Time to first byte" value={micros(total.first_byte_p50)} more={`p95 ${micros(total.first_byte_p95)}`} />
        <Figure hook="duration" name="Call duration" value={micros(total.duration_p50)} more={`p95 ${micros(total.duration_p95)}`} />
        <Figure hook="tokens" name="Tokens" value={compact(total.input + total.output)} more={`${compact(total.input)} input · ${compact(total.output)} output`} />
        <Figure hook="cost" name="Cost" value={dollars(total.micro_usd / 1e6)} href={to("usage")} more="by model and key" />
        <Figure hook="cache" name="Prompt cache hit rate" value={percent(total.cached, total.input)} more="of the input tokens" />
        <Figure hook="saved" name={saved < 0 ? "Extra cost of prompt caches" : "Saved by prompt caches"} value={dollars(Math.abs(saved))} tone={saved > 0 ? "good" : undefined} more="estimate at current prices" />
      </dl>
      <div class="plots">
        <Chart title="Calls" days={names} isBars isWhole show={compact} open={openDay()} series={[{ name: "answered", values: pick((one) => one.calls), colour: "--accent" }]} />
        <Chart title="Errors" days={names} isBars isWhole show={compact} open={openDay({ status: "failed" })} series={[{ name: "failed", values: pick((one) => one.failed), colour: "--bad" }]} />
        <Chart title="Thoughts restored" days={names} isBars isWhole show={compact} open={openDay({ restored: "true" })} series={[{ name: "restored", values: pick((one) => one.restored), colour: "--good" }]} />
        <Chart title="Call duration" days={names} isWhole show={duration} series={[{ name: "p50", values: pick((one) => one.duration_p50, 1000), colour: "--accent" }, { name: "p95", values: pick((one) => one.duration_p95, 1000), colour: "--warn" }]} />
        <Chart title="Tokens" days={names} isWhole show={compact} series={[{ name: "input", values: pick((one) => one.input), colour: "--accent" }, { name: "output", values: pick((one) => one.output), colour: "--warn" }]} />
        <Chart title="Cost" days={names} isBars show={dollars} series={[{ name: "cost", values: pick((one) => one.micro_usd, 1e6), colour: "--accent" }]} />
      </div>
      <p class="hint">Calls answered, tokens and cost are those of <code>throughline usage --by day</code>: gateway calls and the server's agents. The other figures cover gateway calls. Days begin at midnight UTC.</p>
    </>
  );
}

/** Returns all days of the range up to today, with `null` for days without calls. */
function everyDay(days: Overview["days"], since: string): { day: string; numbers: Numbers | null }[] {
  const known = new Map(days.map((one) => [one.day, one]));
  const all = [];
  for (let at = Date.parse(since); at <= Date.now(); at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    all.push({ day, numbers: known.get(day) ?? null });
  }
  return all;
}

/** Lists what may need a person: pending requests, the latest errors, and the latest runs. */
function Attention({ range, since }: { range: string; since: string }) {
  const inbox = useFetch<{ waiting: PendingRequest[] }>("/v1/throughline/inbox", 5000);
  const failed = useFetch<{ calls: CallRow[] }>(`/v1/throughline/calls?${new URLSearchParams({ status: "failed", limit: String(RECENT), since })}`, 5000);
  const runs = useFetch<{ runs: RunRow[] }>(`/v1/throughline/runs?${new URLSearchParams({ limit: String(RECENT), since })}`, 5000);
  const waiting = inbox.value?.waiting ?? [];
  const calls = failed.value?.calls.slice(0, RECENT) ?? [];
  return (
    <>
      {waiting.length ? (
        <p class="callout">
          {waiting.length === 1 ? `One request waits for a person: ${plain(waiting[0]!.title ?? waiting[0]!.run)}.` : `${count(waiting.length)} requests wait for a person.`} <a href={to("inbox")}>Open the inbox</a>
        </p>
      ) : null}
      {calls.length ? (
        <section aria-labelledby="failed-calls">
          <h2 id="failed-calls">Latest errors <a class="all" href={toList("calls", { range, status: "failed" })}>All errors</a></h2>
          <CallTable calls={calls} />
        </section>
      ) : null}
      {runs.value?.runs.length ? (
        <section aria-labelledby="latest-runs">
          <h2 id="latest-runs">Latest runs <a class="all" href={toList("runs", { range })}>All runs</a></h2>
          <RunTable runs={runs.value.runs} />
        </section>
      ) : null}
    </>
  );
}
