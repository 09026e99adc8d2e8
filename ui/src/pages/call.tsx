/** The replay view of a call: what came, what was sent, the difference, and what became of each part of it. */

import { useMemo, useState } from "preact/hooks";
import { Difference } from "../diffview";
import { compact, count, dollars, duration, plain, pretty } from "../format";
import { to, useAnswer, useTitle } from "../hooks";
import { Copy, Id, Loading, Seal, sealState, Sources, Trouble, When } from "../parts";
import type { CallRow, Evidence, Finding } from "../types";
import { Answered, callCost, Verdict } from "./calls";

interface Sent {
  endpoint?: string;
  provider?: string;
  wire?: string;
  model?: string;
  path?: string;
  body?: unknown;
}

interface Story extends Omit<CallRow, "microseconds"> {
  kept_at: string;
  parent?: string;
  prefix_changed?: string;
  microseconds?: { sent?: number; first_byte?: number; end?: number };
  came?: Sent;
  whole?: unknown;
  sent?: Sent;
  /** Whether what was sent is what came, byte for byte. */
  unchanged?: boolean;
  texts?: string;
  attempts?: { endpoint: string; said: string }[];
  fates?: { item: string; visible: string; seals: string[] }[];
  findings?: Finding[];
  mended?: { rule: string; path: string; message: string; mend: string }[];
  restore_findings?: { item: string; message: string }[];
  warnings?: { setting: string; message: string }[];
  rules?: Record<string, { title: string; why: string; fix: string; provider_error?: string; evidence: Evidence[] }>;
}

/** The most parts that are listed at once. */
const MOST = 120;

export function CallPage({ call }: { call: string }) {
  const { value, problem, again } = useAnswer<Story>(`/v1/throughline/calls/${encodeURIComponent(call)}/view`);
  const model = value?.sent?.model ?? value?.model ?? "a model";
  useTitle(value ? `Call of ${plain(model)}` : "Call");
  const came = useMemo(() => pretty(value?.came?.body), [value]);
  const sent = useMemo(() => pretty(value?.sent?.body), [value]);
  if (problem) return <Trouble problem={problem} again={again} />;
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
        <div class="stand">
          <Answered call={row} />
          <Verdict verdict={value.audit} />
        </div>
      </header>
      {value.error ? <Trouble problem={{ status: value.status ?? 0, message: value.error } as never} /> : null}
      <dl class="strip">
        <Fact name="Asked in">{value.dialect}</Fact>
        <Fact name="Sent to">{value.sent ? `${plain(value.sent.provider ?? "")} · ${value.sent.wire ?? ""}` : "nobody"}</Fact>
        <Fact name="Tokens">{value.usage ? `${compact(value.usage.input)} in · ${compact(value.usage.output)} out` : "–"}</Fact>
        <Fact name="Cost">{dollars(callCost(row))}</Fact>
        <Fact name="First byte">{value.microseconds?.first_byte !== undefined ? duration(value.microseconds.first_byte / 1000) : "–"}</Fact>
        <Fact name="Kept">
          <When at={value.kept_at} />
        </Fact>
      </dl>
      {value.prefix_changed ? <p class="callout">What stands before bound seals changed: {plain(value.prefix_changed)}</p> : null}
      <Findings story={value} />
      <Parts story={value} />
      <section aria-labelledby="difference">
        <h2 id="difference">Difference</h2>
        <p class="hint">From what the client sent to what went to the provider. Seals stand by their size.</p>
        {value.texts ? <p class="same">{plain(value.texts)}</p> : value.sent ? <Difference before={came} after={sent} same={value.unchanged ? "Nothing: it went out byte for byte as it came." : "Nothing that can be read: only seals, or the space between words, are others."} /> : <p class="same">Nothing was sent.</p>}
      </section>
      <Body title="What came" about={value.came} text={came} />
      {value.sent ? <Body title="What was sent" about={value.sent} text={sent} /> : null}
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

function Findings({ story }: { story: Story }) {
  const findings = story.findings ?? [];
  const mended = story.mended ?? [];
  const others = [...(story.restore_findings ?? []).map((one) => `${one.item}: ${one.message}`), ...(story.warnings ?? []).map((one) => `${one.setting}: ${one.message}`)];
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Audit</h2>
      {!findings.length && !mended.length && !others.length ? <p class="same">No rule objects.</p> : null}
      {mended.map((one) => (
        <Found severity="mended" rule={one.rule} path={one.path} message={one.message} fix={one.mend} about={story.rules?.[one.rule]} />
      ))}
      {findings.map((one) => (
        <Found severity={one.severity} rule={one.rule} path={one.path} message={one.message} fix={one.fix} about={story.rules?.[one.rule]} />
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

interface FoundProps {
  severity: string;
  rule: string;
  path: string;
  message: string;
  fix: string;
  about?: { why?: string; provider_error?: string | null; evidence?: Evidence[] };
}

export function Found({ severity, rule, path, message, fix, about }: FoundProps) {
  const tone = { refuse: "bad", degrade: "warn", mended: "good" }[severity] ?? "dim";
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
          <span class="label">Provider says</span> <bdi>{plain(about.provider_error)}</bdi>
        </p>
      ) : null}
      {fix ? (
        <p class="fix">
          <span class="label">{severity === "mended" ? "Mended" : "Fix"}</span> <bdi>{plain(fix)}</bdi>
        </p>
      ) : null}
      {about?.why || about?.evidence?.length ? (
        <details>
          <summary>Why, and how it is known</summary>
          {about.why ? <p>{plain(about.why)}</p> : null}
          {about.evidence?.length ? <Sources evidence={about.evidence} /> : null}
        </details>
      ) : null}
    </article>
  );
}

function Parts({ story }: { story: Story }) {
  const [open, setOpen] = useState(false);
  const fates = story.fates ?? [];
  const tally = new Map<string, number>();
  for (const fate of fates) for (const did of [fate.visible, ...fate.seals]) tally.set(did.split(":")[0]!, (tally.get(did.split(":")[0]!) ?? 0) + 1);
  const telling = fates.filter((fate) => fate.seals.length || fate.visible !== "kept");
  const shown = (open ? fates : telling).slice(-MOST);
  return (
    <section aria-labelledby="fates">
      <h2 id="fates">What became of each part</h2>
      <p class="counts">
        {[...tally].map(([did, times]) => (
          <span>
            <strong class="number">{count(times)}</strong> {did}
          </span>
        ))}
        {!fates.length ? "Nobody looked." : null}
      </p>
      {shown.length ? (
        <div class="table">
          <table>
            <thead>
              <tr>
                <th>Part</th>
                <th>What can be read</th>
                <th>Seals</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((fate) => (
                <tr>
                  <td data-label="Part">
                    <code>{plain(fate.item)}</code>
                  </td>
                  <td data-label="What can be read">{plain(fate.visible)}</td>
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
      {fates.length > telling.length ? (
        <button class="quiet" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? "Only what is sealed or changed" : `All ${count(fates.length)} parts`}
        </button>
      ) : null}
    </section>
  );
}

function Body({ title, about, text }: { title: string; about?: Sent; text: string }) {
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
