/** A trace: the spans of a run, from the server or from an exported file. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { download, ApiError } from "../api";
import { createAxis, type Axis } from "../axis";
import { compact, count, dollars, duration, exact, plain, pretty } from "../format";
import { to, useFetch, useTitle } from "../hooks";
import { Empty, Id, Loading, ErrorBox, LongText } from "../parts";
import { VirtualList } from "../virtual";

interface Span {
  sequence: number;
  type: string;
  label: string;
  spanId: string;
  timestamp: string;
  durationMs: number;
  status: string;
  error?: { message: string };
  attributes: Record<string, unknown>;
}

interface Session {
  sessionId: string;
  traceId: string;
  threadId: string;
  startedAt?: string;
  durationMs?: number;
  agent?: { name: string };
  summary?: Record<string, any>;
  events: Span[];
  status: string;
  errors: { message: string }[];
}

const KINDS: Record<string, string> = { ai_call: "Model", tool_call: "Tool", plan: "Plan", wait: "Wait", note: "Note", agent: "Run" };
const STATUS: Record<string, string> = { success: "good", error: "bad", partial: "warn", running: "live" };

export function TracePage({ run }: { run: string }) {
  const path = `/v1/throughline/runs/${encodeURIComponent(run)}/trace`;
  const [file, setFile] = useState<{ name: string; session: Session } | null>(null);
  const [trouble, setTrouble] = useState<ApiError | null>(null);
  const [isRunning, setRunning] = useState(false);
  const fetched = useFetch<Session>(run && !file ? path : null, isRunning ? 3000 : 0);
  const session = file?.session ?? fetched.value;
  useEffect(() => setRunning(fetched.value?.status === "running"), [fetched.value]);
  const title = session ? titleOf(session) : "Trace";
  useTitle(`Trace of ${title}`);
  const open = async (chosen: File) => {
    try {
      setFile({ name: chosen.name, session: sessionOf(await chosen.text()) });
      setTrouble(null);
    } catch (error) {
      setTrouble(new ApiError(422, (error as Error).message));
    }
  };
  const problem = trouble ?? (file ? null : fetched.problem);
  return (
    <div class="run trace">
      <header class="head">
        <div>
          <p class="crumbs">
            <a href={to("runs")}>Runs</a>
            {run && !file ? <a href={to("run", run)}>Timeline</a> : null}
            <span>Trace</span>
            {file ? <code class="id">{plain(file.name)}</code> : run ? <Id id={run} /> : null}
          </p>
          <h1>
            <bdi>{plain(title)}</bdi>
          </h1>
        </div>
        <div class="head-status">
          {session ? (
            <span class={`status ${STATUS[session.status] ?? "dim"}`}>
              <i aria-hidden="true" />
              {plain(session.status)}
            </span>
          ) : null}
          <label class="button">
            Open a file
            <input class="hidden" type="file" accept=".json,application/json" onChange={(event) => event.currentTarget.files?.[0] && open(event.currentTarget.files[0])} />
          </label>
          {run && session && !file ? <button onClick={() => download(path, `${run}.trace.json`).catch(setTrouble)}>Download</button> : null}
        </div>
      </header>
      {problem ? <ErrorBox problem={problem} reload={trouble ? undefined : fetched.reload} /> : null}
      {!session && !problem && run ? <Loading /> : null}
      {!session && !run ? (
        <Empty title="No trace selected">
          Open a file that <code>throughline traces export RUN &gt; trace.json</code> or a <code>file</code> sink wrote. It stays in this browser.
        </Empty>
      ) : null}
      {session ? <Spans session={session} /> : null}
    </div>
  );
}

/** Parses a trace file. */
function sessionOf(text: string): Session {
  let session: any = null;
  try {
    session = JSON.parse(text);
  } catch {
    // Invalid JSON is reported below.
  }
  const isSpan = (one: any) => typeof one?.timestamp === "string" && typeof one.label === "string" && typeof one.durationMs === "number" && one.attributes;
  if (typeof session?.sessionId !== "string" || !Array.isArray(session.events) || !session.events.every(isSpan)) {
    throw new Error("This file is not a Throughline trace. Open the JSON that `throughline traces export` writes.");
  }
  return { errors: [], status: "", ...session };
}

/** Returns the first user message, or the agent's name. */
function titleOf(session: Session): string {
  for (const span of session.events) {
    const messages = parsed(span.attributes["gen_ai.input.messages"]);
    const first = Array.isArray(messages) ? messages.find((one) => one?.role === "user") : null;
    const text = first?.parts?.[0]?.content;
    if (typeof text === "string") return text.slice(0, 140);
  }
  return session.agent?.name || session.sessionId;
}

const parsed = (value: unknown): any => {
  try {
    return typeof value === "string" ? JSON.parse(value) : null;
  } catch {
    return null;
  }
};

function Spans({ session }: { session: Session }) {
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const spans = useMemo(() => [...session.events].sort((a, b) => Date.parse(a.timestamp) - Date.parse(b.timestamp) || a.sequence - b.sequence), [session]);
  const time = useMemo(() => createAxis(spans.length ? spans.map((span) => ({ ...bounds(span), isWait: span.type === "wait" })) : [{ start: 0, end: 1, isWait: true }]), [spans]);
  const turn = (sequence: number) => {
    const next = new Set(open);
    if (!next.delete(sequence)) next.add(sequence);
    setOpen(next);
  };
  return (
    <>
      <Summary session={session} />
      {session.errors.map((error) => (
        <p class="callout">
          <bdi>{plain(error.message)}</bdi>
        </p>
      ))}
      <section class="timeline spans" aria-label="Spans">
        {spans.length ? (
          <VirtualList rows={spans} id={(span) => String(span.sequence)} draw={(span) => <Row span={span} time={time} isOpen={open.has(span.sequence)} turn={() => turn(span.sequence)} />} estimateHeight={() => 37} follows={false} label={`Spans, ${count(spans.length)}`} />
        ) : (
          <Empty title="No spans yet" />
        )}
      </section>
      {time.folds.length ? <p class="hint">Waiting times are compressed.</p> : null}
    </>
  );
}

function Summary({ session }: { session: Session }) {
  const { summary = {} } = session;
  const facts: [string, string, string?][] = [["Spans", count(session.events.length)]];
  const add = (name: string, key: string, show: (value: number) => string, hook?: string) => {
    if (typeof summary[key] === "number") facts.push([name, show(summary[key]), hook]);
  };
  if (session.durationMs !== undefined) facts.unshift(["Duration", duration(session.durationMs)]);
  add("Turns", "throughline.turns", count, "turns");
  if (summary["throughline.attempts.discarded"]) add("Attempts", "throughline.attempts", count, "attempts");
  add("Tools", "throughline.tools", count);
  add("Tokens in", "gen_ai.usage.input_tokens", compact);
  add("Tokens out", "gen_ai.usage.output_tokens", compact);
  add("Cost", "throughline.cost_usd", dollars);
  add("Thoughts", "throughline.thoughts", count, "had");
  add("Kept", "throughline.fates.kept", count, "kept");
  add("Restored", "throughline.fates.restored", count, "restored");
  if (summary["throughline.fates.reshaped"]) add("Reshaped", "throughline.fates.reshaped", count, "reshaped");
  add("Elided", "throughline.fates.elided", count, "elided");
  return (
    <dl class="strip">
      {facts.map(([name, value, hook]) => (
        <div>
          <dt>{name}</dt>
          <dd data-count={hook}>{value}</dd>
        </div>
      ))}
      <div>
        <dt>Trace id</dt>
        <dd>
          <code class="hex">{plain(String(session.traceId ?? ""))}</code>
        </dd>
      </div>
    </dl>
  );
}

const bounds = (span: Span) => {
  const start = Date.parse(span.timestamp);
  return { start, end: start + span.durationMs };
};

function Row({ span, time, isOpen, turn }: { span: Span; time: Axis; isOpen: boolean; turn: () => void }) {
  const { start, end } = bounds(span);
  const [from, until] = [time.at(start), time.at(end)];
  const tone = span.status === "error" ? "bad" : span.type;
  const name = plain(span.label.replace(/ #\d+$/, "").slice(0, 200));
  return (
    <div class={`span ${tone}`}>
      <button aria-expanded={isOpen} onClick={turn}>
        <span class="label">{KINDS[span.type] ?? plain(span.type)}</span>
        <bdi class="name">{name}</bdi>
        <span class="lane">
          <i style={{ left: `${from * 100}%`, width: `max(3px, ${(until - from) * 100}%)` }} />
        </span>
        <span class="number">{span.durationMs || span.type !== "note" ? duration(span.durationMs) : ""}</span>
      </button>
      {isOpen ? <Attributes span={span} /> : null}
    </div>
  );
}

function Attributes({ span }: { span: Span }) {
  return (
    <dl>
      <dt>started</dt>
      <dd>{exact(span.timestamp)}</dd>
      {span.error ? (
        <>
          <dt>error</dt>
          <dd class="bad">
            <LongText text={span.error.message} limit={800} />
          </dd>
        </>
      ) : null}
      {Object.entries(span.attributes).map(([key, value]) => (
        <>
          <dt>{plain(key)}</dt>
          <dd>
            <LongText text={formatAttribute(value)} mono limit={800} />
          </dd>
        </>
      ))}
    </dl>
  );
}

/** Formats messages in OpenTelemetry's convention, one per line with their role. */
function messages(value: unknown): string | null {
  if (!Array.isArray(value) || !value.length || !value.every((one) => typeof one?.role === "string" && Array.isArray(one.parts))) return null;
  return value.map((one) => `${one.role}: ${one.parts.map((part: any) => (typeof part?.content === "string" ? part.content : pretty(part))).join(" ")}`).join("\n");
}

/** Formats an attribute: texts and messages line by line, other values as indented JSON. */
function formatAttribute(value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join("\n");
  const inner = parsed(value);
  if (typeof inner === "string") return inner;
  return messages(inner) ?? (inner !== null && typeof inner === "object" ? pretty(inner) : String(value));
}
