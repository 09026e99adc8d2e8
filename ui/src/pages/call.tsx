/**
 * The page of a call: its answer, what was restored and why, the difference between the received
 * and the sent request, findings, Fates, timing, cost and headers.
 */

import { useMemo, useState } from "preact/hooks";
import { Difference } from "../diffview";
import { compact, count, dollars, duration, plain, pretty } from "../format";
import { to, useFetch, useTitle } from "../hooks";
import { Copy, ErrorBox, Fact, FetchStatus, FullTime, Id, PageHead, Seal, sealState, Sources, Table, type Column, type Crumb } from "../parts";
import type { CallRow, Evidence, Finding } from "../types";
import { Answer, type ReplyItem } from "./answer";
import { CallStatus, callCost, isGood, Verdict } from "./calls";
import { pythonSnippet } from "../snippet";
import { Restored } from "./restored";

export interface RequestBody {
  provider?: string;
  wire?: string;
  model?: string;
  path?: string;
  headers?: [name: string, value: string][];
  body?: unknown;
}

export interface PartFate {
  item: string;
  visible: string;
  seals: string[];
}

/** A system message that the gateway appended instead of changing the signed prefix. */
interface AppendedMessage {
  /** Index in the messages of the sent request. */
  message: number;
  system: boolean;
  tools_added: string[];
  tools_removed: string[];
}

export interface CallRecord extends Omit<CallRow, "microseconds"> {
  stored_at: string;
  prefix_changed?: string;
  microseconds?: { sent?: number; first_byte?: number; end?: number };
  received?: RequestBody;
  sent?: RequestBody;
  /** Whether the sent body equals the received body, byte for byte. */
  unchanged?: boolean;
  bodies?: string;
  /** The Items of the captured reply. */
  reply?: ReplyItem[];
  attempts?: { endpoint: string; error: string }[];
  fates?: PartFate[];
  findings?: Finding[];
  repaired?: { rule: string; path: string; message: string; fix: string }[];
  restore_findings?: { item: string; message: string }[];
  appended?: AppendedMessage[];
  warnings?: { setting: string; message: string }[];
  rules?: Record<string, { title: string; why: string; fix: string; provider_error?: string; evidence: Evidence[] }>;
}

/** Maximum number of listed parts. */
const MAX_PARTS = 120;

export function CallPage({ call }: { call: string }) {
  const state = useFetch<CallRecord>(`/v1/throughline/calls/${encodeURIComponent(call)}/view`);
  const { value } = state;
  const model = value?.sent?.model ?? value?.model ?? "a model";
  useTitle(value ? `Call to ${plain(model)}` : "Call");
  const received = useMemo(() => pretty(value?.received?.body), [value]);
  const sent = useMemo(() => pretty(value?.sent?.body), [value]);
  if (!value) return <FetchStatus state={state} />;
  const row = { ...value, microseconds: value.microseconds?.end } as CallRow;
  const links: Crumb[] = value.thread ? [["Thread", "thread", value.thread], ["Thought map", "map", value.thread]] : [];
  const restored = (value.fates ?? []).filter(isRestored);
  return (
    <>
      <PageHead title={model} crumbs={[["Calls", "calls"], ...links]} id={<Id id={call} />}>
        <div class="head-status">
          <CallStatus call={row} />
          {isGood(row) ? <Verdict verdict={value.audit} /> : null}
        </div>
      </PageHead>
      {value.error ? <ErrorBox problem={{ status: value.status ?? 0, message: value.error } as never} /> : null}
      <dl class="strip">
        <Fact name="Thoughts restored">{count(restored.length)}</Fact>
        <Fact name="Sent to">{value.sent ? `${plain(value.sent.provider ?? "")} · ${value.sent.wire ?? ""}` : "not sent"}</Fact>
        <Fact name="Tokens">{value.usage ? `${compact(value.usage.input)} input · ${compact(value.usage.output)} output` : "–"}</Fact>
        <Fact name="Cost">{dollars(callCost(row))}</Fact>
        <Fact name="Duration">{value.microseconds?.end !== undefined ? duration(value.microseconds.end / 1000) : "–"}</Fact>
        <Fact name="Stored"><FullTime at={value.stored_at} /></Fact>
      </dl>
      <Actions record={value} call={call} />
      <Answer record={value} />
      {value.prefix_changed ? <p class="callout">Seals were removed because an earlier part of the conversation changed: {plain(value.prefix_changed)}</p> : null}
      {restored.length ? <Restored record={value} restored={restored} /> : null}
      <Appended messages={value.appended ?? []} />
      <section aria-labelledby="difference">
        <h2 id="difference">Difference</h2>
        <p class="hint">Compares the request from the client with the request that was sent to the provider. Restored lines have the mark ↺. Seals are shown only by their size.</p>
        {value.bodies || !value.sent ? (
          <p class="same">{plain(value.bodies || "No request was sent to the provider.")}</p>
        ) : (
          <Difference before={received} after={sent} marks={restored.length ? isReasoningLine : undefined} same={value.unchanged ? "No difference: the request was forwarded byte for byte." : "No readable difference: only Seals or whitespace differ."} />
        )}
      </section>
      <Findings record={value} />
      <Parts record={value} />
      <Timing record={value} />
      <Cost record={value} row={row} />
      <Body title="Request from the client" about={value.received} text={received} />
      {value.sent ? <Body title="Request to the provider" about={value.sent} text={sent} /> : null}
      <Headers title="Headers from the client" headers={value.received?.headers} />
      <Headers title="Headers to the provider" headers={value.sent?.headers} />
    </>
  );
}

const isRestored = (fate: PartFate) => [fate.visible, ...fate.seals].some((did) => did.startsWith("restored"));

/** Returns whether a line of a request's JSON belongs to reasoning or to its Seal. */
const isReasoningLine = (line: string) => /"(thinking|signature|encrypted_content|thoughtSignature|thought_signature|reasoning_content|reasoning|reasoning_details|thought|redacted_thinking|data)":|"type": "(thinking|redacted_thinking|reasoning|summary_text)"/.test(line);

/** Quotes a text for a POSIX shell. */
const quote = (text: string) => `'${text.replace(/'/g, "'\\''")}'`;

/** Returns a command that sends the request of a call again, as the client sent it. */
function curl({ path, headers, body }: RequestBody): string {
  const own = (headers ?? []).filter(([name]) => !/^(host|content-length|content-type|accept-encoding|connection|user-agent|accept)$/i.test(name));
  const parts = [`curl ${quote(`${location.origin}${path ?? ""}`)}`, ...own.map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`), `--json ${quote(JSON.stringify(body))}`];
  return parts.join(" \\\n  ");
}

/** Copies the request in several forms, and opens the Thread at this call. */
function Actions({ record, call }: { record: CallRecord; call: string }) {
  const { received, sent, thread } = record;
  const has = (request?: RequestBody) => request?.body !== undefined && request.body !== null;
  return (
    <div class="actions">
      {thread ? <a class="button" href={`${to("thread", thread)}?call=${encodeURIComponent(call)}`}>Show in Thread</a> : null}
      {has(received) ? <Copy text={curl(received!)} label="Copy as curl" /> : null}
      {has(received) && pythonSnippet(received!) ? <Copy text={pythonSnippet(received!)!} label="Copy as Python" /> : null}
      {has(received) ? <Copy text={JSON.stringify(received!.body, null, 2)} label="Copy fixture for throughline audit" /> : null}
      {has(sent) ? <Copy text={JSON.stringify(sent!.body, null, 2)} label="Copy sent request" /> : null}
    </div>
  );
}

/** The phases of a call as bars on one time axis. */
function Timing({ record }: { record: CallRecord }) {
  const { sent, first_byte, end } = record.microseconds ?? {};
  if (!end) return null;
  const phases: [name: string, from: number, to: number][] = [];
  if (sent !== undefined) phases.push(["Gateway: restore and audit", 0, sent]);
  if (sent !== undefined && first_byte !== undefined) phases.push(["Provider: to the first byte", sent, first_byte]);
  if (first_byte !== undefined) phases.push(["Provider: rest of the response", first_byte, end]);
  if (!phases.length) phases.push(["Gateway", 0, end]);
  const share = (time: number) => `${(Math.min(time, end) / end) * 100}%`;
  return (
    <section aria-labelledby="timing">
      <h2 id="timing">Timing</h2>
      <dl class="waterfall">
        {phases.map(([name, from, until]) => (
          <div>
            <dt>{name}</dt>
            <dd>
              <span class="lane"><i style={{ left: share(from), width: share(Math.max(until - from, end / 400)) }} /></span>
              <span class="number">{duration((until - from) / 1000)}</span>
            </dd>
          </div>
        ))}
      </dl>
      {record.attempts?.length ? (
        <>
          <h3>Failed attempts before</h3>
          <ul class="notes">
            {record.attempts.map((one) => (
              <li><bdi>{plain(`${one.endpoint}: ${one.error}`)}</bdi></li>
            ))}
          </ul>
        </>
      ) : null}
    </section>
  );
}

function Cost({ record, row }: { record: CallRecord; row: CallRow }) {
  const { usage } = record;
  if (!usage) return null;
  const fresh = Math.max(0, usage.input - usage.cached - usage.written);
  const rows: [string, number][] = [["Input, not cached", fresh], ["Input, read from a cache", usage.cached], ["Input, written to a cache", usage.written], ["Output", usage.output], ["of which reasoning", usage.thought]];
  return (
    <section aria-labelledby="cost">
      <h2 id="cost">Tokens and cost</h2>
      <dl class="facts cost">
        {rows.map(([name, tokens]) => (
          <>
            <dt>{name}</dt>
            <dd class="number">{count(tokens ?? 0)}</dd>
          </>
        ))}
        <dt>Cost</dt>
        <dd class="number">{dollars(callCost(row))}{record.cost?.prices ? <small>{plain(record.cost.prices)}</small> : null}</dd>
      </dl>
    </section>
  );
}

function Headers({ title, headers }: { title: string; headers?: [string, string][] }) {
  if (!headers?.length) return null;
  return (
    <details class="body">
      <summary>{title} <span class="dim">{count(headers.length)}, without credentials</span></summary>
      <dl class="facts wide">
        {headers.map(([name, text]) => (
          <>
            <dt><code>{plain(name)}</code></dt>
            <dd><code>{plain(text)}</code></dd>
          </>
        ))}
      </dl>
    </details>
  );
}

function Appended({ messages }: { messages: AppendedMessage[] }) {
  if (!messages.length) return null;
  const describe = (one: AppendedMessage) =>
    [
      one.system ? "system prompt changed" : "",
      one.tools_added.length ? `tools added: ${one.tools_added.join(", ")}` : "",
      one.tools_removed.length ? `tools removed: ${one.tools_removed.join(", ")}` : "",
    ]
      .filter(Boolean)
      .join("; ");
  return (
    <section aria-labelledby="appended">
      <h2 id="appended">Appended changes</h2>
      <p class="hint">The client changed its system prompt or its tools. The gateway kept the original ones, so that all Seals stay valid, and sent the changes in system messages.</p>
      <ul class="notes">
        {messages.map((one) => (
          <li><bdi>{plain(`messages.${one.message}: ${describe(one)}`)}</bdi></li>
        ))}
      </ul>
    </section>
  );
}

function Findings({ record }: { record: CallRecord }) {
  const findings = record.findings ?? [];
  const repairs = record.repaired ?? [];
  const notes = [...(record.restore_findings ?? []).map((one) => `${one.item}: ${one.message}`), ...(record.warnings ?? []).map((one) => `${one.setting}: ${one.message}`)];
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Audit</h2>
      {!findings.length && !repairs.length && !notes.length ? <p class="same">No findings.</p> : null}
      {[...repairs.map((one) => ({ ...one, severity: "repaired" })), ...findings].map((one) => (
        <FindingCard {...one} about={record.rules?.[one.rule]} />
      ))}
      {notes.length ? (
        <ul class="notes">
          {notes.map((one) => (
            <li><bdi>{plain(one)}</bdi></li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}

interface FindingCardProps extends Pick<Finding, "severity" | "rule" | "path" | "message" | "fix"> {
  about?: { why?: string; provider_error?: string | null; evidence?: Evidence[] };
}

export function FindingCard({ severity, rule, path, message, fix, about }: FindingCardProps) {
  const tone = { refuse: "bad", degrade: "warn", repaired: "good" }[severity] ?? "dim";
  return (
    <article class={`finding ${tone}`}>
      <header>
        <span class={`tag ${tone}`}>{severity}</span>
        <code>{rule}</code>
        <span class="dim"><bdi>{plain(path || "the request")}</bdi></span>
      </header>
      <p><bdi>{plain(message)}</bdi></p>
      {about?.provider_error ? <p class="quote"><span class="label">Provider error</span> <bdi>{plain(about.provider_error)}</bdi></p> : null}
      {fix ? <p class="fix"><span class="label">{severity === "repaired" ? "Repaired" : "Fix"}</span> <bdi>{plain(fix)}</bdi></p> : null}
      {about?.why || about?.evidence?.length ? (
        <details>
          <summary>Reason and evidence</summary>
          {about.why ? <p>{plain(about.why)}</p> : null}
          {about.evidence?.length ? <Sources evidence={about.evidence} /> : null}
        </details>
      ) : null}
    </article>
  );
}

/** A mark for a Seal, with the details of its Fate, such as why the Seal was left out. */
const SealFate = ({ did }: { did: string }) => (
  <span class="fate">
    <Seal state={sealState(did)} why={did} /> {did.includes(":") ? <small>{plain(did.split(": ").slice(1).join(": "))}</small> : null}
  </span>
);

const FATE_COLUMNS: Column<PartFate>[] = [
  ["Part", (fate) => <code>{plain(fate.item)}</code>],
  ["Visible content", (fate) => plain(fate.visible)],
  ["Seals", ({ seals }) => (seals.length ? seals.map((did) => <SealFate did={did} />) : <span class="dim">none</span>)],
];

function Parts({ record }: { record: CallRecord }) {
  const [open, setOpen] = useState(false);
  const fates = record.fates ?? [];
  const tally = new Map<string, number>();
  for (const did of fates.flatMap((fate) => [fate.visible, ...fate.seals])) {
    const name = did.split(":")[0]!;
    tally.set(name, (tally.get(name) ?? 0) + 1);
  }
  const notable = fates.filter((fate) => fate.seals.length || fate.visible !== "kept");
  const visible = (open ? fates : notable).slice(-MAX_PARTS);
  return (
    <section aria-labelledby="fates">
      <h2 id="fates">Fate of each part</h2>
      <p class="counts">
        {[...tally].map(([did, times]) => (
          <span><strong class="number">{count(times)}</strong> {did}</span>
        ))}
        {!fates.length ? "This call was not audited." : null}
      </p>
      {visible.length ? <Table rows={visible} columns={FATE_COLUMNS} /> : null}
      {fates.length > notable.length ? (
        <button class="quiet" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? "Show only sealed or changed parts" : `Show all ${count(fates.length)} parts`}
        </button>
      ) : null}
    </section>
  );
}

function Body({ title, about, text }: { title: string; about?: RequestBody; text: string }) {
  const long = text.length > 60_000;
  return (
    <details class="body">
      <summary>
        {title} {about?.path ? <code>{plain(about.path)}</code> : null}
      </summary>
      <Copy text={text} />
      <pre tabIndex={0} role="region" aria-label={title}>
        {long ? `${text.slice(0, 60_000)}\n… ${count(text.length - 60_000)} more characters` : text}
      </pre>
    </details>
  );
}
