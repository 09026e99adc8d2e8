/** Calls through the gateway: the newest of them. */

import { useEffect, useState } from "preact/hooks";
import { compact, dollars, duration, plain } from "../format";
import { to, useAnswer, useNow, useTitle } from "../hooks";
import { Empty, Id, Loading, Trouble, When } from "../parts";
import type { CallRow } from "../types";

export function CallsPage() {
  useTitle("Calls");
  const [words, setWords] = useState("");
  const [search, setSearch] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSearch(words.trim()), 200);
    return () => clearTimeout(timer);
  }, [words]);
  const query = new URLSearchParams({ limit: "200", ...(search ? { search } : {}) });
  const { value, problem, again } = useAnswer<{ calls: CallRow[] }>(`/v1/throughline/calls?${query}`, 3000);
  return (
    <>
      <header class="head">
        <h1>Calls</h1>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label="Search calls" placeholder="Search models, providers, errors" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        </form>
      </header>
      {problem ? <Trouble problem={problem} again={again} /> : null}
      {!value && !problem ? <Loading /> : null}
      {value && !value.calls.length ? (
        <Empty title={search ? "No call fits" : "No calls yet"}>
          Point the official Anthropic, OpenAI or Gemini SDK at <code>{location.origin}</code>.
        </Empty>
      ) : null}
      {value?.calls.length ? <CallTable calls={value.calls} /> : null}
    </>
  );
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
            <th>Asked in</th>
            <th class="number">Tokens</th>
            <th class="number">Cost</th>
            <th class="number">Took</th>
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
                <Answered call={call} />
              </td>
              <td data-label="Audit">
                <Verdict verdict={call.audit} />
              </td>
              <td data-label="Asked in" class="dim">
                {call.dialect}
                {call.target?.wire && call.target.wire !== call.dialect ? ` → ${call.target.wire}` : ""}
              </td>
              <td data-label="Tokens" class="number">
                {call.usage ? compact(call.usage.input + call.usage.output) : "–"}
              </td>
              <td data-label="Cost" class="number">
                {dollars(callCost(call))}
              </td>
              <td data-label="Took" class="number">
                {call.microseconds !== undefined ? duration(call.microseconds / 1000) : "–"}
              </td>
              <td data-label="When" class="number dim">
                <When at={call.at} now={now} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Answered({ call }: { call: CallRow }) {
  const isGood = !call.error && (call.status ?? 200) < 400;
  return (
    <span class={`status ${isGood ? "good" : "bad"}`} title={call.error ? plain(call.error) : undefined}>
      <i aria-hidden="true" />
      {isGood ? (call.answer?.stop ?? "answered") : `refused${call.status ? ` ${call.status}` : ""}`}
    </span>
  );
}

export function Verdict({ verdict }: { verdict?: string }) {
  if (!verdict) return <span class="dim">–</span>;
  const tone = { accept: "good", degrade: "warn", refuse: "bad" }[verdict] ?? "dim";
  return <span class={`tag ${tone}`}>{verdict}</span>;
}
