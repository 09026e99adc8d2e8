/** Small components that many pages use. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiError } from "./api";
import { ago, bytes, count, exact, plain, shortId } from "./format";
import type { Evidence, Thoughts } from "./types";

const STATUS: Record<string, [tone: string, label: string]> = {
  running: ["live", "running"],
  waiting: ["warn", "waiting"],
  completed: ["good", "completed"],
  failed: ["bad", "failed"],
  cancelled: ["dim", "cancelled"],
};

export function Status({ status }: { status: string }) {
  const [tone, label] = STATUS[status] ?? ["dim", status];
  return (
    <span class={`status ${tone}`}>
      <i aria-hidden="true" />
      {plain(label)}
    </span>
  );
}

/** The Fate of a Thought or Seal, shown as a mark. */
export type SealState = "sealed" | "intact" | "restored" | "reshaped" | "foreign" | "elided" | "forgotten" | "open";

const SEALS: Record<SealState, [sign: string, label: string]> = {
  sealed: ["◆", "sealed"],
  intact: ["◆", "intact"],
  restored: ["↺", "restored"],
  reshaped: ["≈", "reshaped"],
  foreign: ["◇", "foreign"],
  elided: ["×", "elided"],
  forgotten: ["∅", "forgotten"],
  open: ["○", "not sealed"],
};

export function sealState(did: string | undefined): SealState {
  if (did === undefined) return "sealed";
  if (did.startsWith("kept")) return "intact";
  if (did.startsWith("restored")) return "restored";
  if (did.startsWith("reshaped")) return "reshaped";
  if (did.startsWith("elided: foreign")) return "foreign";
  if (/forgotten|retention|expired/.test(did)) return "forgotten";
  return "elided";
}

export function Seal({ state, why, size, times }: { state: SealState; why?: string; size?: number; times?: number }) {
  const [sign, label] = SEALS[state];
  return (
    <span class={`seal ${state}`} title={why ? plain(why) : undefined}>
      <i aria-hidden="true">{sign}</i>
      {times ? `${count(times)} ${label}` : label}
      {size ? <small>{bytes(size)}</small> : null}
    </span>
  );
}

/** Shows the numbers of kept, restored and elided Thoughts. */
export function FateCounts({ thoughts }: { thoughts: Thoughts }) {
  const { kept, restored, reshaped, elided } = thoughts;
  if (!kept && !restored && !reshaped && !elided) {
    return <span class="dim">{thoughts.had ? `${count(thoughts.had)} new` : "–"}</span>;
  }
  return (
    <span class="tally" role="group" aria-label={`${kept} kept, ${restored} restored, ${elided} elided`}>
      <span class="kept" title="kept: sent back unchanged">{count(kept)}</span>
      <span class={restored ? "restored" : "none"} title="restored: the client had lost them">{count(restored)}</span>
      <span class={elided ? "elided" : "none"} title="elided: left out of this request, still stored">{count(elided)}</span>
    </span>
  );
}

export function RelativeTime({ at, now }: { at: string; now?: number }) {
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at, now)}
    </time>
  );
}

export function Id({ id }: { id: string }) {
  return (
    <code class="id" title={plain(id)}>
      {plain(shortId(id))}
    </code>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 120 40" aria-hidden="true">
        <path d="M4 28c20 0 20-18 56-18s36 18 56 18" />
        <circle cx="60" cy="10" r="4" />
      </svg>
      <h2>{title}</h2>
      {children ? <p>{children}</p> : null}
    </div>
  );
}

export function ErrorBox({ problem, reload }: { problem: ApiError; reload?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <strong>{problem.status === 404 ? "Not found" : "Request failed"}</strong>
      <span>{plain(problem.message)}</span>
      {reload ? <button onClick={reload}>Try again</button> : null}
    </div>
  );
}

export function Loading() {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      <i />
      <i />
      <i />
    </div>
  );
}

export function Meter({ label, used, allowed, shown }: { label: string; used: number; allowed: number; shown: string }) {
  const share = allowed > 0 ? Math.min(1, used / allowed) : 1;
  const tone = share >= 1 ? "full" : share > 0.8 ? "near" : "";
  return (
    <div class="meter">
      <div>
        <span>{label}</span>
        <span class="number">{shown}</span>
      </div>
      <div class={`bar ${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={allowed} aria-valuenow={Math.min(used, allowed)}>
        <i style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  );
}

/** Shortens a text to `limit` characters and `MAX_LINES` lines. */
function shorten(text: string, limit: number): string {
  const begin = text.length > limit ? text.slice(0, limit) : text;
  const lines = begin.split("\n", MAX_LINES + 1);
  return lines.length > MAX_LINES ? lines.slice(0, MAX_LINES).join("\n") : begin;
}

/** Maximum number of lines of a collapsed text. */
const MAX_LINES = 14;

/** Shows an untrusted text, collapsed if it is long. It is never interpreted as markup. */
export function LongText({ text, limit = 1600, mono }: { text: string; limit?: number; mono?: boolean }) {
  const [open, setOpen] = useState(false);
  const whole = plain(text);
  const part = shorten(whole, limit);
  return (
    <div class={mono ? "long-text mono" : "long-text"}>
      <bdi>{open || part === whole ? whole : `${part}…`}</bdi>
      {part !== whole ? (
        <button class="more" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? "Show less" : `Show all ${count(whole.length)} characters`}
        </button>
      ) : null}
    </div>
  );
}

export function Sources({ evidence }: { evidence: Evidence[] }) {
  return (
    <ul class="sources">
      {evidence.map((one) => (
        <li>
          <span class="tag">{one.kind}</span>
          {one.url && /^https:\/\//.test(one.url) ? (
            <a href={one.url} rel="noreferrer noopener" target="_blank">
              {one.url.replace(/^https:\/\//, "")}
            </a>
          ) : (
            <span>{plain(one.source ?? one.url ?? "")}</span>
          )}
        </li>
      ))}
    </ul>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      setDone(false);
    }
  };
  return (
    <button class="quiet" onClick={copy}>
      {done ? "Copied" : label}
    </button>
  );
}
