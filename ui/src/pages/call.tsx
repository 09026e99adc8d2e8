/** The replay view of a call: received and sent request, their difference, and all Fates. */

import { useMemo, useState } from "preact/hooks";
import { Difference } from "../diffview";
import { compact, count, dollars, duration, plain, pretty } from "../format";
import { to, useFetch, useTitle } from "../hooks";
import { Copy, Id, Loading, Seal, sealState, Sources, ErrorBox, RelativeTime } from "../parts";
import type { CallRow, Evidence, Finding } from "../types";
import { CallStatus, callCost, Verdict } from "./calls";

interface RequestBody {
  endpoint?: string;
  provider?: string;
  wire?: string;
  model?: string;
  path?: string;
  body?: unknown;
}

interface CallRecord extends Omit<CallRow, "microseconds"> {
  kept_at: string;
  parent?: string;
  prefix_changed?: string;
  microseconds?: { sent?: number; first_byte?: number; end?: number };
  came?: RequestBody;
  whole?: unknown;
  sent?: RequestBody;
  /** Whether the sent body equals the received one, byte for byte. */
  unchanged?: boolean;
  texts?: string;
  attempts?: { endpoint: string; said: string }[];
  fates?: { item: string; visible: string; seals: string[] }[];
  findings?: Finding[];
  repaired?: { rule: string; path: string; message: string; fix: string }[];
  restore_findings?: { item: string; message: string }[];
  warnings?: { setting: string; message: string }[];
  rules?: Record<string, { title: string; why: string; fix: string; provider_error?: string; evidence: Evidence[] }>;
}

/** Maximum number of listed parts. */
const MAX_PARTS = 120;

export function CallPage({ call }: { call: string }) {
  const { value, problem, reload } = useFetch<CallRecord>(`/v1/throughline/calls/${encodeURIComponent(call)}/view`);
  const model = value?.sent?.model ?? value?.model ?? "a model";
  useTitle(value ? `Call to ${plain(model)}` : "Call");
  const came = useMemo(() => pretty(value?.came?.body), [value]);
  const sent = useMemo(() => pretty(value?.sent?.body), [value]);
  if (problem) return <ErrorBox problem={problem} reload={reload} />;
  if (!value) return <Loading />;
  const row = { ...value, microseconds: value.microseconds?.end } as CallRow;
  return (
    <>
      <header class="head">
        <div>
          <p class="crumbs">
            <a href={to("calls")}>Calls</a>
            {value.thread ? (
              <>
                <a href={to("thread", value.thread)}>Thread</a>
                <a href={to("map", value.thread)}>Thought map</a>
              </>
            ) : null}
            <Id id={call} />
          </p>
          <h1>
            <bdi>{plain(model)}</bdi>
          </h1>
        </div>
        <div class="head-status">
          <CallStatus call={row} />
          <Verdict verdict={value.audit} />
        </div>
      </header>
      {value.error ? <ErrorBox problem={{ status: value.status ?? 0, message: value.error } as never} /> : null}
      <dl class="strip">
        <Fact name="Dialect">{value.dialect}</Fact>
        <Fact name="Sent to">{value.sent ? `${plain(value.sent.provider ?? "")} · ${value.sent.wire ?? ""}` : "not sent"}</Fact>
        <Fact name="Tokens">{value.usage ? `${compact(value.usage.input)} in · ${compact(value.usage.output)} out` : "–"}</Fact>
        <Fact name="Cost">{dollars(callCost(row))}</Fact>
        <Fact name="First byte">{value.microseconds?.first_byte !== undefined ? duration(value.microseconds.first_byte / 1000) : "–"}</Fact>
        <Fact name="Stored">
          <RelativeTime at={value.kept_at} />
        </Fact>
      </dl>
      {value.prefix_changed ? <p class="callout">The prefix of bound seals changed: {plain(value.prefix_changed)}</p> : null}
      <Findings record={value} />
      <Parts record={value} />
      <section aria-labelledby="difference">
        <h2 id="difference">Difference</h2>
        <p class="hint">From the client's request to the request that was sent to the provider. Seals are shown by their size.</p>
        {value.texts ? <p class="same">{plain(value.texts)}</p> : value.sent ? <Difference before={came} after={sent} same={value.unchanged ? "No difference: the request was forwarded byte for byte." : "No readable difference: only seals or white space differ."} /> : <p class="same">Nothing was sent.</p>}
      </section>
      <Body title="Received request" about={value.came} text={came} />
      {value.sent ? <Body title="Sent request" about={value.sent} text={sent} /> : null}
    </>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Findings({ record }: { record: CallRecord }) {
  const findings = record.findings ?? [];
  const repairs = record.repaired ?? [];
  const others = [...(record.restore_findings ?? []).map((one) => `${one.item}: ${one.message}`), ...(record.warnings ?? []).map((one) => `${one.setting}: ${one.message}`)];
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Audit</h2>
      {!findings.length && !repairs.length && !others.length ? <p class="same">No findings.</p> : null}
      {repairs.map((one) => (
        <FindingCard severity="repaired" rule={one.rule} path={one.path} message={one.message} fix={one.fix} about={record.rules?.[one.rule]} />
      ))}
      {findings.map((one) => (
        <FindingCard severity={one.severity} rule={one.rule} path={one.path} message={one.message} fix={one.fix} about={record.rules?.[one.rule]} />
      ))}
      {others.length ? (
        <ul class="notes">
          {others.map((one) => (
            <li>
              <bdi>{plain(one)}</bdi>
            </li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}

interface FindingCardProps {
  severity: string;
  rule: string;
  path: string;
  message: string;
  fix: string;
  about?: { why?: string; provider_error?: string | null; evidence?: Evidence[] };
}

export function FindingCard({ severity, rule, path, message, fix, about }: FindingCardProps) {
  const tone = { refuse: "bad", degrade: "warn", repaired: "good" }[severity] ?? "dim";
  return (
    <article class={`finding ${tone}`}>
      <header>
        <span class={`tag ${tone}`}>{severity}</span>
        <code>{rule}</code>
        <span class="dim">
          <bdi>{plain(path || "the request")}</bdi>
        </span>
      </header>
      <p>
        <bdi>{plain(message)}</bdi>
      </p>
      {about?.provider_error ? (
        <p class="quote">
          <span class="label">Provider error</span> <bdi>{plain(about.provider_error)}</bdi>
        </p>
      ) : null}
      {fix ? (
        <p class="fix">
          <span class="label">{severity === "repaired" ? "Repaired" : "Fix"}</span> <bdi>{plain(fix)}</bdi>
        </p>
      ) : null}
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

function Parts({ record }: { record: CallRecord }) {
  const [open, setOpen] = useState(false);
  const fates = record.fates ?? [];
  const tally = new Map<string, number>();
  for (const fate of fates) for (const did of [fate.visible, ...fate.seals]) tally.set(did.split(":")[0]!, (tally.get(did.split(":")[0]!) ?? 0) + 1);
  const notable = fates.filter((fate) => fate.seals.length || fate.visible !== "kept");
  const shown = (open ? fates : notable).slice(-MAX_PARTS);
  return (
    <section aria-labelledby="fates">
      <h2 id="fates">Fate of each part</h2>
      <p class="counts">
        {[...tally].map(([did, times]) => (
          <span>
            <strong class="number">{count(times)}</strong> {did}
          </span>
        ))}
        {!fates.length ? "Not audited." : null}
      </p>
      {shown.length ? (
        <div class="table">
          <table>
            <thead>
              <tr>
                <th>Part</th>
                <th>Visible content</th>
                <th>Seals</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((fate) => (
                <tr>
                  <td data-label="Part">
                    <code>{plain(fate.item)}</code>
                  </td>
                  <td data-label="Visible content">{plain(fate.visible)}</td>
                  <td data-label="Seals">
                    {fate.seals.length
                      ? fate.seals.map((did) => (
                          <span class="fate">
                            <Seal state={sealState(did)} why={did} /> {did.includes(":") ? <small>{plain(did.split(": ").slice(1).join(": "))}</small> : null}
                          </span>
                        ))
                      : <span class="dim">none</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {fates.length > notable.length ? (
        <button class="quiet" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? "Only sealed or changed parts" : `All ${count(fates.length)} parts`}
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
