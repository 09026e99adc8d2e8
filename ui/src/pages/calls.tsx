/** Calls through the gateway, sorted by the last write to their thread. */

import { compact, dollars, duration, plain } from "../format";
import { useNow, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Dot, RelativeTime, Table, TitleCell, type Column } from "../parts";
import type { CallRow } from "../types";

export function CallsPage() {
  useTitle("Calls");
  const list = useList<CallRow>("/v1/throughline/calls", "calls", 3000);
  const hint = <>Point the official Anthropic, OpenAI or Gemini SDK at <code>{location.origin}</code>.</>;
  return <ListPage title="Calls" list={list} placeholder="Search models, providers, errors" none={["No matching calls", "No calls yet"]} hint={hint} draw={(calls) => <CallTable calls={calls} />} />;
}

export function callCost(call: CallRow): number | null {
  const { cost } = call;
  if (typeof cost === "number") return cost;
  return typeof cost?.micro_usd === "number" ? cost.micro_usd / 1e6 : (cost?.usd ?? null);
}

export function CallTable({ calls }: { calls: CallRow[] }) {
  const now = useNow();
  const columns: Column<CallRow>[] = [
    ["Call", (call) => <TitleCell page="call" id={call.id} title={call.target?.model ?? call.model ?? "a model"} />, "title"],
    ["Answer", (call) => <CallStatus call={call} />],
    ["Audit", (call) => <Verdict verdict={call.audit} />],
    ["Dialect", ({ dialect, target }) => (target?.wire && target.wire !== dialect ? `${dialect} → ${target.wire}` : dialect), "dim"],
    ["Tokens", ({ usage }) => (usage ? compact(usage.input + usage.output) : "–"), "number"],
    ["Cost", (call) => dollars(callCost(call)), "number"],
    ["Duration", (call) => (call.microseconds !== undefined ? duration(call.microseconds / 1000) : "–"), "number"],
    ["When", (call) => <RelativeTime at={call.at} now={now} />, "number dim"],
  ];
  return <Table rows={calls} columns={columns} id={(call) => call.id} />;
}

/** Labels for the stop reasons of answers. */
const STOPS: Record<string, [tone: string, label: string]> = {
  done: ["good", "answered"],
  tools: ["good", "tool calls"],
  sequence: ["good", "answered"],
  paused: ["good", "paused"],
  length: ["warn", "cut at the limit"],
  refused: ["bad", "declined"],
  cut: ["bad", "ended early"],
};

export function CallStatus({ call }: { call: CallRow }) {
  const isGood = !call.error && (call.status ?? 200) < 400;
  const stop = call.answer?.stop ?? "done";
  const [tone, label] = isGood ? (STOPS[stop] ?? ["dim", stop]) : ["bad", `failed${call.status ? ` ${call.status}` : ""}`];
  return <Dot tone={tone} title={call.error ? plain(call.error) : undefined}>{plain(label)}</Dot>;
}

export function Verdict({ verdict }: { verdict?: string }) {
  if (!verdict) return <span class="dim">–</span>;
  const tone = { accept: "good", degrade: "warn", refuse: "bad" }[verdict] ?? "dim";
  return <span class={`tag ${tone}`}>{verdict}</span>;
}
