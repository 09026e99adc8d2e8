/** The live timeline of a run: Thoughts, messages, tool calls and decisions. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Connection } from "../api";
import type { PlanStep, Row, Timeline } from "../fold";
import { bytes, compact, count, dollars, duration, plain, plural, resumeCommand } from "../format";
import { useFetch, useNow, useTitle } from "../hooks";
import { Copy, FetchStatus, FullTime, Id, Loading, Meter, PageHead, Status, type Crumb } from "../parts";
import { useTimeline } from "../timeline";
import { VirtualList } from "../virtual";
import { Decisions, RunActions } from "./actions";
import { DrawRow, estimateHeight, type Fates } from "./rows";
import { elapsed } from "./runs";
import type { RunHead, ThoughtMap } from "../types";

const LIMITS: Record<string, string> = {
  maxToolCalls: "Tool calls",
  maxTotalOutputTokens: "Output tokens",
  maxCostUsd: "Cost",
};

const FATES = [["kept", "Kept"], ["restored", "Restored"], ["reshaped", "Reshaped"], ["elided", "Elided"]] as const;

export function RunPage({ run, decided }: { run: string; decided: () => void }) {
  const path = `/v1/throughline/runs/${encodeURIComponent(run)}`;
  const { view, connection, version } = useTimeline(run);
  const isOver = connection === "ended";
  const head = useFetch<RunHead>(path, isOver ? 0 : 2000);
  // The page scrolls with new rows of an active run; it shows a finished run from its start.
  const isLive = !isOver && ["running", "waiting"].includes(head.value?.status ?? "");

  // The counts come from the server: reload them after each model answer and at the end.
  useEffect(() => {
    if (isOver || view.replays) head.reload();
  }, [isOver, view.replays]);

  const fates = useFates(head.value?.thread, view.replays);
  const first = view.rows.find((row) => row.kind === "message" && row.role === "user");
  const title = first?.kind === "message" ? first.text.slice(0, 140) : head.value?.gone ? "Erased run" : run;
  useTitle(plain(title));
  const isInterrupted = Boolean(head.value?.interrupted);
  const status = isInterrupted ? "interrupted" : view.status || head.value?.status || "";
  const rows = useMemo(() => view.rows.slice(), [version]);

  if (head.problem && !head.value) return <FetchStatus state={head} />;
  const links: Crumb[] = head.value ? [["Thread", "thread", head.value.thread], ["Thought map", "map", head.value.thread], ["Trace", "trace", run]] : [];
  return (
    <div class="run">
      <PageHead title={title} crumbs={[["Runs", "runs"], ...links]} id={<Id id={run} />}>
        <div class="head-status">
          {status ? <Status status={status} /> : null}
          <ConnectionBadge connection={connection} />
        </div>
      </PageHead>
      {head.value && !head.value.gone ? <RunActions head={head.value} status={status} changed={head.reload} /> : null}
      {head.value?.gone ? <p class="callout">The content of this run was erased: {plain(head.value.gone)}.</p> : null}
      {status === "failed" && !head.value?.gone ? <Cause view={view} head={head.value} /> : null}
      {isInterrupted ? <Interrupted run={run} missing={head.value?.missing_tools ?? []} /> : null}
      {status === "waiting" && !head.value?.gone ? <Decisions run={run} decided={decided} /> : null}
      <div class="split">
        <section class="timeline" aria-label="Timeline">
          <h2 class="hidden">Timeline</h2>
          {rows.length ? (
            <VirtualList rows={rows} id={(row: Row) => row.key} draw={(row) => <DrawRow row={row} rev={row.rev} fate={row.kind === "thought" && row.id ? fates.get(row.id) : undefined} />} estimateHeight={estimateHeight} follows={isLive} label={`Timeline with ${plural(rows.length, "row")}`} />
          ) : (
            <Loading />
          )}
        </section>
        <aside aria-label="About this run" tabIndex={0}>
          <Facts view={view} head={head.value} />
          {view.plan?.length ? <Plan steps={view.plan} /> : null}
          {head.value?.limits?.length ? (
            <section>
              <h2>Limits</h2>
              {head.value.limits.map(({ name, used, allowed }) => {
                const now = name === "maxToolCalls" ? Math.max(used, view.toolCalls) : used;
                const show = name === "maxCostUsd" ? dollars : compact;
                return <Meter label={LIMITS[name] ?? name} used={now} allowed={allowed} shown={`${show(now)} of ${show(allowed)}`} />;
              })}
            </section>
          ) : null}
        </aside>
      </div>
    </div>
  );
}

/** Returns the latest Fate of each Thought, and reloads the Fates after new requests. */
function useFates(thread: string | undefined, replays: number): Fates {
  const [requested, setRequested] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setRequested(replays), 600);
    return () => clearTimeout(timer);
  }, [replays]);
  const map = useFetch<ThoughtMap>(thread && requested ? `/v1/throughline/threads/${encodeURIComponent(thread)}/map?of=${requested}` : null);
  const previous = useRef<Fates>(new Map());
  return useMemo(() => {
    if (!map.value) return previous.current;
    const fates: Fates = new Map();
    for (const call of map.value.calls) {
      for (const [from, number, did] of call.spans) {
        for (let index = from; index < from + number; index++) {
          const item = map.value.items[index];
          if (item) fates.set(item.id, { did, turn: call.turn, model: call.model });
        }
      }
    }
    previous.current = fates;
    return fates;
  }, [map.value]);
}

/** States why a failed run ended: the reason, and the last error in the timeline. */
function Cause({ view, head }: { view: Timeline; head: RunHead | null }) {
  const errors = view.rows.filter((row) => row.kind === "note" && row.tone === "bad");
  const last = errors[errors.length - 1];
  const texts = last?.kind === "note" ? [last.text, last.more ?? ""] : [];
  const parts = [head?.reason ?? "", ...texts].map((text) => text.trim()).filter(Boolean);
  const unique = parts.filter((text, index) => !parts.slice(0, index).some((other) => other.includes(text) || text.includes(other)));
  return (
    <div class="trouble cause" role="alert">
      <strong>This run failed</strong>
      {unique.length ? unique.map((text) => <bdi>{plain(text.slice(0, 600))}</bdi>) : <span>The run recorded no reason.</span>}
      {unique.length ? <Copy text={unique.join("\n")} label="Copy" /> : null}
    </div>
  );
}

/** Explains how to continue a run whose process has stopped. */
function Interrupted({ run, missing }: { run: string; missing: string[] }) {
  const command = resumeCommand(run, missing);
  return (
    <div class="callout" role="status">
      The process that drove this run has stopped. The run continues after its last stored step with <code>{plain(command)}</code>
      {missing.length ? ", or with --agent FILE" : ""}. <Copy text={command} label="Copy command" />
    </div>
  );
}

function ConnectionBadge({ connection }: { connection: Connection }) {
  const label = { opening: "connecting", live: "live", lost: "reconnecting", ended: "complete" }[connection];
  // After the run has ended, the page shows its status instead of the connection.
  return (
    <span class={`connection ${connection}${connection === "ended" ? " hidden" : ""}`} role="status" aria-label={`Connection: ${label}`}>
      <i aria-hidden="true" />
      {label}
    </span>
  );
}

function Facts({ view, head }: { view: Timeline; head: RunHead | null }) {
  const tokens = view.tokens ?? head?.tokens ?? {};
  const thoughts = head?.thoughts;
  const now = useNow(1000);
  const cost = view.cost ?? head?.cost_usd ?? null;
  return (
    <section>
      <h2>Run</h2>
      <dl class="facts">
        <dt>Models</dt>
        <dd>
          {(view.models.length ? view.models : head?.model ? [head.model] : []).map((model) => (
            <bdi class="block">{plain(model)}</bdi>
          ))}
        </dd>
        <dt>Turns</dt>
        <dd class="number">
          <span data-count="turns">{count(head?.turns ?? 0)}</span>
          {head?.discarded ? <small data-count="attempts">{plural(head.attempts ?? 0, "attempt")}, {count(head.discarded)} discarded</small> : null}
        </dd>
        <dt>Tokens</dt>
        <dd class="number">
          {compact(tokens.inputTokens ?? 0)} input<br />
          {compact(tokens.outputTokens ?? 0)} output
          {tokens.reasoningTokens ? <><br />{compact(tokens.reasoningTokens)} reasoning</> : null}
        </dd>
        <dt>Cost</dt>
        <dd class="number">{dollars(cost)}</dd>
        {head ? <><dt>Duration</dt><dd class="number">{duration(elapsed(head, now))}</dd></> : null}
        {head ? <><dt>Started</dt><dd class="number"><FullTime at={head.created} /></dd></> : null}
      </dl>
      <h2>Thoughts</h2>
      <dl class="facts">
        <dt>Total</dt>
        <dd class="number">
          <span data-count="received">{count(thoughts?.received ?? 0)}</span>
          {thoughts?.sealed_bytes ? <small>{bytes(thoughts.sealed_bytes)} sealed</small> : null}
        </dd>
        {FATES.filter(([fate]) => fate !== "reshaped" || thoughts?.reshaped).map(([fate, label]) => (
          <>
            <dt>{label}</dt>
            <dd class="number" data-count={fate}>{count(thoughts?.[fate] ?? 0)}</dd>
          </>
        ))}
      </dl>
    </section>
  );
}

function Plan({ steps }: { steps: PlanStep[] }) {
  const done = steps.filter((step) => step.status === "completed").length;
  return (
    <section>
      <Meter label="Plan" used={done} allowed={steps.length} shown={`${done} of ${steps.length}`} />
      <PlanList steps={steps} />
    </section>
  );
}

export function PlanList({ steps }: { steps: PlanStep[] }) {
  const signs: Record<string, string> = { completed: "☑", "in-progress": "▸", blocked: "⊘" };
  return (
    <ol class="plan">
      {steps.map((step) => (
        <li class={step.status}>
          <i aria-hidden="true">{signs[step.status] ?? "☐"}</i>
          <bdi>{plain(step.title ?? step.step)}</bdi>
          <span class="hidden">{step.status}</span>
        </li>
      ))}
    </ol>
  );
}
