/** A trace: the spans of a run, from the server or from an exported file. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { download, ApiError } from "../api";
import { createAxis, type Axis } from "../axis";
import { compact, count, dollars, duration, exact, plain, pretty } from "../format";
import { useFetch, useTitle } from "../hooks";
import { Dot, Empty, ErrorBox, Fact, Id, Loading, LongText, PageHead, type Crumb } from "../parts";
import { VirtualList } from "../virtual";

interface Span {
  sequence: number;
  type: string;
  label: string;
  timestamp: string;
  durationMs: number;
  status: string;
  error?: { message: string };
  attributes: Record<string, unknown>;
}

interface Session {
  sessionId: string;
  traceId: string;
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
  const [fileProblem, setFileProblem] = useState<ApiError | null>(null);
  const [isRunning, setRunning] = useState(false);
  const fetched = useFetch<Session>(run && !file ? path : null, isRunning ? 3000 : 0);
  const session = file?.session ?? fetched.value;
  useEffect(() => setRunning(fetched.value?.status === "running"), [fetched.value]);
  const title = session ? titleOf(session) : "Trace";
  useTitle(`Trace of ${title}`);
  const open = async (chosen: File) => {
    try {
      setFile({ name: chosen.name, session: sessionOf(await chosen.text()) });
      setFileProblem(null);
    } catch (error) {
      setFileProblem(new ApiError(422, (error as Error).message));
    }
  };
  const timeline: Crumb[] = run && !file ? [["Timeline", "run", run]] : [];
  const problem = fileProblem ?? (file ? null : fetched.problem);
  return (
    <div class="run trace">
      <PageHead title={title} crumbs={[["Runs", "runs"], ...timeline, ["Trace"]]} id={file ? <code class="id">{plain(file.name)}</code> : run ? <Id id={run} /> : null}>
        <div class="head-status">
          {session ? <Dot tone={STATUS[session.status] ?? "dim"}>{plain(session.status)}</Dot> : null}
          <label class="button">
            Open a file
            <input class="hidden" type="file" accept=".json,application/json" onChange={(event) => event.currentTarget.files?.[0] && open(event.currentTarget.files[0])} />
          </label>
          {run && session && !file ? <button onClick={() => download(path, `${run}.trace.json`).catch(setFileProblem)}>Download</button> : null}
        </div>
      </PageHead>
      {problem ? <ErrorBox problem={problem} reload={fileProblem ? undefined : fetched.reload} /> : null}
      {!session && !problem && run ? <Loading /> : null}
      {!session && !run ? (
        <Empty title="No trace selected">
          Open a file that <code>throughline traces export RUN &gt; trace.json</code> or a <code>file</code> sink wrote. The file is not uploaded.
        </Empty>
      ) : null}
      {session ? <Spans session={session} /> : null}
    </div>
  );
}

/** Parses a trace file; throws an error if the text is not a Throughline trace. */
function sessionOf(text: string): Session {
  let session: any = null;
  try {
    session = JSON.parse(text);
  } catch {
    // Invalid JSON is reported below.
  }
  const isSpan = (one: any) => typeof one?.timestamp === "string" && typeof one.label === "string" && typeof one.durationMs === "number" && one.attributes;
  if (typeof session?.sessionId !== "string" || !Array.isArray(session.events) || !session.events.every(isSpan)) {
    throw new Error("This file is not a Throughline trace. Open a JSON file that `throughline traces export` wrote.");
  }
  return { errors: [], status: "", ...session };
}

/** Returns the page title: the first user message, or the agent's name. */
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
        <p class="callout"><bdi>{plain(error.message)}</bdi></p>
      ))}
      <section class="timeline spans" aria-label="Spans">
        {spans.length ? (
          <VirtualList rows={spans} id={(span) => String(span.sequence)} draw={(span) => <Row span={span} time={time} isOpen={open.has(span.sequence)} turn={() => turn(span.sequence)} />} estimateHeight={() => 37} follows={false} label={`Spans: ${count(spans.length)}`} />
        ) : (
          <Empty title="No spans yet" />
        )}
      </section>
      {time.folds.length ? <p class="hint">Waiting times are compressed.</p> : null}
    </>
  );
}

/** Summary values: label, key in the summary, formatter, and the `data-count` that tests read. */
const FACTS: [name: string, key: string, show: (value: number) => string, hook?: string][] = [
  ["Turns", "throughline.turns", count, "turns"],
  ["Attempts", "throughline.attempts", count, "attempts"],
  ["Tools", "throughline.tools", count],
  ["Input tokens", "gen_ai.usage.input_tokens", compact],
  ["Output tokens", "gen_ai.usage.output_tokens", compact],
  ["Cost", "throughline.cost_usd", dollars],
  ["Thoughts", "throughline.thoughts", count, "received"],
  ["Kept", "throughline.fates.kept", count, "kept"],
  ["Restored", "throughline.fates.restored", count, "restored"],
  ["Reshaped", "throughline.fates.reshaped", count, "reshaped"],
  ["Elided", "throughline.fates.elided", count, "elided"],
];

function Summary({ session }: { session: Session }) {
  const { summary = {} } = session;
  // Attempts are shown only if some were discarded, and reshaped Thoughts only if there are any.
  const isShown = (key: string) =>
    typeof summary[key] === "number" && (key !== "throughline.attempts" || summary["throughline.attempts.discarded"]) && (key !== "throughline.fates.reshaped" || summary[key]);
  return (
    <dl class="strip">
      {session.durationMs !== undefined ? <Fact name="Duration">{duration(session.durationMs)}</Fact> : null}
      <Fact name="Spans">{count(session.events.length)}</Fact>
      {FACTS.filter(([, key]) => isShown(key)).map(([name, key, show, hook]) => (
        <Fact name={name} hook={hook}>{show(summary[key])}</Fact>
      ))}
      <Fact name="Trace id"><code class="hex">{plain(String(session.traceId ?? ""))}</code></Fact>
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
      {span.error ? <><dt>error</dt><dd class="bad"><LongText text={span.error.message} limit={800} /></dd></> : null}
      {Object.entries(span.attributes).map(([key, value]) => (
        <>
          <dt>{plain(key)}</dt>
          <dd><LongText text={formatAttribute(value)} mono limit={800} /></dd>
        </>
      ))}
    </dl>
  );
}

/** Formats OpenTelemetry messages, one per line with its role; `null` for any other value. */
function messages(value: unknown): string | null {
  if (!Array.isArray(value) || !value.length || !value.every((one) => typeof one?.role === "string" && Array.isArray(one.parts))) return null;
  return value.map((one) => `${one.role}: ${one.parts.map((part: any) => (typeof part?.content === "string" ? part.content : pretty(part))).join(" ")}`).join("\n");
}

/** Formats an attribute: strings and messages line by line, objects as indented JSON. */
function formatAttribute(value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join("\n");
  const inner = parsed(value);
  if (typeof inner === "string") return inner;
  return messages(inner) ?? (inner !== null && typeof inner === "object" ? pretty(inner) : String(value));
}
