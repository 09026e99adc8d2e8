/** Calls through the gateway, sorted by the last write to their thread. */

import { useEffect, useState } from "preact/hooks";
import { compact, count, dollars, duration, plain } from "../format";
import { useNow, useParam, useTitle } from "../hooks";
import { FilterChoice, ListPage, RangeChoice, useList, useRange } from "../list";
import { Copy, Dot, RelativeTime, Table, TitleCell, type Column } from "../parts";
import type { CallRow } from "../types";

const STATUS_LABELS: Record<string, string> = { ok: "Answered", failed: "Failed", "400": "Failed 400", "401": "Failed 401", "404": "Failed 404", "429": "Failed 429", "500": "Failed 500", "529": "Failed 529" };
const VERDICT_LABELS: Record<string, string> = { accept: "Audit: accept", degrade: "Audit: degrade", refuse: "Audit: refuse" };
const RESTORED_LABELS: Record<string, string> = { true: "With restored Thoughts" };

const named = (labels: Record<string, string>) => (value: string) => labels[value] ?? plain(value);

export function CallsPage() {
  useTitle("Calls");
  const [status] = useParam("status");
  const [model] = useParam("model");
  const [audit] = useParam("audit");
  const [restored] = useParam("restored");
  const range = useRange();
  const list = useList<CallRow>("/v1/throughline/calls", "calls", 3000, { status, model, audit, restored, ...range });
  const models = useNames(list.rows, (call) => [call.target?.model ?? call.model ?? ""]);
  const filters = (
    <>
      <FilterChoice label="Status" name="status" none="Any status" all={Object.keys(STATUS_LABELS)} show={named(STATUS_LABELS)} />
      <FilterChoice label="Model" name="model" none="Any model" all={models} />
      <FilterChoice label="Audit" name="audit" none="Any audit" all={Object.keys(VERDICT_LABELS)} show={named(VERDICT_LABELS)} />
      <FilterChoice label="Restored" name="restored" none="All calls" all={["true"]} show={named(RESTORED_LABELS)} />
      <RangeChoice />
    </>
  );
  return <ListPage title="Calls" list={list} placeholder="Search models, providers, errors" filters={filters} none={["No matching calls", "No calls yet"]} hint={<ConnectHint />} draw={(calls) => <CallTable calls={calls} list="calls" />} />;
}

/** Collects the names in the loaded rows for a filter. Names stay when a filter hides their rows. */
export function useNames<R>(rows: R[] | null, of: (row: R) => string[]): string[] {
  const [names, setNames] = useState<string[]>([]);
  useEffect(() => {
    const all = new Set(names);
    rows?.forEach((row) => of(row).filter(Boolean).forEach((name) => all.add(name)));
    if (all.size !== names.length) setNames([...all].sort());
  }, [rows]);
  return names;
}

/** Explains how to send the first call, with a command to copy. */
export function ConnectHint() {
  const body = JSON.stringify({ model: "sim/claude-sonnet-5-5", messages: [{ role: "user", content: "Hello" }] });
  const command = `curl ${location.origin}/v1/chat/completions --json '${body}'`;
  return (
    <>
      <p>Set the base URL of the official Anthropic, OpenAI or Gemini SDK to this gateway, or send a first call to a simulator:</p>
      <pre class="command">{command}</pre>
      <Copy text={command} label="Copy command" />
    </>
  );
}

export function callCost(call: CallRow): number | null {
  const { cost } = call;
  if (typeof cost === "number") return cost;
  return typeof cost?.micro_usd === "number" ? cost.micro_usd / 1e6 : (cost?.usd ?? null);
}

/** A table of calls; `shown` is the id of a highlighted call. */
export function CallTable({ calls, shown, list }: { calls: CallRow[]; shown?: string; list?: string }) {
  const now = useNow();
  const columns: Column<CallRow>[] = [
    ["Call", (call) => <TitleCell page="call" id={call.id} title={call.title ?? call.target?.model ?? call.model ?? "a model"} />, "title"],
    ["Model", (call) => <ModelCell call={call} />, undefined, undefined, (call) => call.target?.model ?? call.model ?? ""],
    ["Answer", (call) => <CallStatus call={call} />],
    ["Audit", (call) => <Verdict verdict={isGood(call) ? call.audit : undefined} />],
    ["Restored", (call) => <Restored call={call} />, "number", undefined, (call) => call.fate_counts?.restored_items ?? 0],
    ["Tokens", ({ usage }) => (usage ? compact(usage.input + usage.output) : "–"), "number", undefined, ({ usage }) => (usage ? usage.input + usage.output : -1)],
    ["Cost", (call) => dollars(callCost(call)), "number", undefined, (call) => callCost(call) ?? -1],
    ["Duration", (call) => (call.microseconds !== undefined ? duration(call.microseconds / 1000) : "–"), "number", undefined, (call) => call.microseconds ?? -1],
    ["When", (call) => <RelativeTime at={call.at} now={now} />, "number dim", undefined, (call) => call.at],
  ];
  return <Table rows={calls} columns={columns} list={list} id={(call) => call.id} current={shown} />;
}

function ModelCell({ call }: { call: CallRow }) {
  const { dialect, target } = call;
  return (
    <>
      <bdi class="block">{plain(target?.model ?? call.model ?? "–")}</bdi>
      <small class="dim">{target?.wire && target.wire !== dialect ? `${dialect} → ${target.wire}` : dialect}</small>
    </>
  );
}

/** The number of Thoughts and other Items that the gateway restored. */
function Restored({ call }: { call: CallRow }) {
  const restored = call.fate_counts?.restored_items ?? 0;
  return restored ? <span class="seal restored" title="The client had dropped these Items"><i aria-hidden="true">↺</i>{count(restored)}</span> : <span class="dim">–</span>;
}

export const isGood = (call: CallRow) => !call.error && (call.status ?? 200) < 400;

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
  const stop = call.answer?.stop ?? "done";
  const [tone, label] = isGood(call) ? (STOPS[stop] ?? ["dim", stop]) : ["bad", `failed${call.status ? ` ${call.status}` : ""}`];
  return <Dot tone={tone} title={call.error ? plain(call.error) : undefined}>{plain(label)}</Dot>;
}

export function Verdict({ verdict }: { verdict?: string }) {
  if (!verdict) return <span class="dim">–</span>;
  const tone = { accept: "good", degrade: "warn", refuse: "bad" }[verdict] ?? "dim";
  return <span class={`tag ${tone}`}>{verdict}</span>;
}
