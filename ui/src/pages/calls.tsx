/** Calls through the gateway, sorted by the last write to their thread. */

import { compact, dollars, duration, plain } from "../format";
import { to, useNow, useTitle } from "../hooks";
import { ListPage, useList } from "../list";
import { Id, RelativeTime } from "../parts";
import type { CallRow } from "../types";

export function CallsPage() {
  useTitle("Calls");
  const list = useList<CallRow>("/v1/throughline/calls", "calls", 3000);
  const hint = (
    <>
      Point the official Anthropic, OpenAI or Gemini SDK at <code>{location.origin}</code>.
    </>
  );
  return <ListPage title="Calls" list={list} placeholder="Search models, providers, errors" none={["No matching calls", "No calls yet"]} hint={hint} draw={(calls) => <CallTable calls={calls} />} />;
}

export function callCost(call: CallRow): number | null {
  const cost = call.cost;
  if (cost === undefined || cost === null) return null;
  if (typeof cost === "number") return cost;
  if (typeof cost.micro_usd === "number") return cost.micro_usd / 1e6;
  if (typeof cost.usd === "number") return cost.usd;
  return null;
}

export function CallTable({ calls }: { calls: CallRow[] }) {
  const now = useNow();
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            <th>Call</th>
            <th>Answer</th>
            <th>Audit</th>
            <th>Dialect</th>
            <th class="number">Tokens</th>
            <th class="number">Cost</th>
            <th class="number">Duration</th>
            <th class="number">When</th>
          </tr>
        </thead>
        <tbody>
          {calls.map((call) => (
            <tr key={call.id}>
              <td class="title">
                <a href={to("call", call.id)}>
                  <bdi>{plain(call.target?.model ?? call.model ?? "a model")}</bdi>
                </a>
                <Id id={call.id} />
              </td>
              <td data-label="Answer">
                <CallStatus call={call} />
              </td>
              <td data-label="Audit">
                <Verdict verdict={call.audit} />
              </td>
              <td data-label="Dialect" class="dim">
                {call.dialect}
                {call.target?.wire && call.target.wire !== call.dialect ? ` → ${call.target.wire}` : ""}
              </td>
              <td data-label="Tokens" class="number">
                {call.usage ? compact(call.usage.input + call.usage.output) : "–"}
              </td>
              <td data-label="Cost" class="number">
                {dollars(callCost(call))}
              </td>
              <td data-label="Duration" class="number">
                {call.microseconds !== undefined ? duration(call.microseconds / 1000) : "–"}
              </td>
              <td data-label="When" class="number dim">
                <RelativeTime at={call.at} now={now} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
  return (
    <span class={`status ${tone}`} title={call.error ? plain(call.error) : undefined}>
      <i aria-hidden="true" />
      {plain(label)}
    </span>
  );
}

export function Verdict({ verdict }: { verdict?: string }) {
  if (!verdict) return <span class="dim">–</span>;
  const tone = { accept: "good", degrade: "warn", refuse: "bad" }[verdict] ?? "dim";
  return <span class={`tag ${tone}`}>{verdict}</span>;
}
