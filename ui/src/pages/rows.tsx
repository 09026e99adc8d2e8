/** The rows of a timeline. */

import { Component } from "preact";
import { bytes, clock, compact, dollars, duration, exact, line, plain, pretty } from "../format";
import { to } from "../hooks";
import { Seal, sealState, LongText } from "../parts";
import type { MessageRow, NoteRow, PlanRow, QuestionRow, Row, ThoughtRow, ToolRow, TurnRow } from "../fold";
import { PlanList } from "./run";

export interface ThoughtFate {
  did: string;
  turn: number;
  model: string;
}
export type Fates = Map<string, ThoughtFate>;

/** Estimates the height of a row that has not been drawn yet. */
export function estimateHeight(row: Row): number {
  switch (row.kind) {
    case "turn":
      return 44;
    case "thought":
    case "message":
      return 60 + Math.min(14, Math.ceil(row.text.length / 90)) * 22;
    case "tool":
      return 84;
    default:
      return 48;
  }
}

interface Props {
  row: Row;
  rev: number;
  fate?: ThoughtFate;
}

/** A row that is drawn again only after a change. */
export class DrawRow extends Component<Props> {
  shouldComponentUpdate(next: Props) {
    return next.row !== this.props.row || next.rev !== this.props.rev || next.fate?.did !== this.props.fate?.did;
  }

  render({ row, fate }: Props) {
    switch (row.kind) {
      case "turn":
        return <Turn row={row} />;
      case "thought":
        return <Thought row={row} fate={fate} />;
      case "message":
        return <Message row={row} />;
      case "tool":
        return <Tool row={row} />;
      case "question":
        return <Question row={row} />;
      case "plan":
        return <PlanChange row={row} />;
      case "note":
        return <Note row={row} />;
    }
  }
}

function EventTime({ at }: { at: string }) {
  return (
    <time dateTime={at} title={exact(at)}>
      {clock(at)}
    </time>
  );
}

function Turn({ row }: { row: TurnRow }) {
  const { replay, usage } = row;
  return (
    <div class={`row turn ${row.phase}`} data-turn={row.turn} data-attempt={row.attempt}>
      <h3>
        {row.purpose && row.purpose !== "turn" ? `Turn ${row.turn}, ${plain(row.purpose)}` : `Turn ${row.turn}`}
        {row.attempt > 1 ? `, attempt ${row.attempt}` : ""}
        {row.model ? <bdi class="model">{plain(row.model)}</bdi> : null}
      </h3>
      <span class="numbers">
        {row.phase === "discarded" ? <span class="tag warn" title={row.reason ? plain(row.reason) : undefined}>discarded</span> : null}
        {replay && replay.kept ? <Seal state="intact" times={replay.kept} why={`${replay.kept} thoughts were sent back unchanged`} /> : null}
        {replay && replay.restored ? <Seal state="restored" times={replay.restored} why={`${replay.restored} thoughts were restored`} /> : null}
        {replay && replay.elided ? <Seal state={isForeign(replay.why) ? "foreign" : "elided"} times={replay.elided} why={why(replay.why)} /> : null}
        {usage ? (
          <span class="number" title="tokens in, out">
            {compact(usage.inputTokens ?? 0)} → {compact(usage.outputTokens ?? 0)}
          </span>
        ) : null}
        {row.cost !== undefined ? <span class="number">{dollars(row.cost)}</span> : null}
        <EventTime at={row.at} />
      </span>
    </div>
  );
}

/** Returns whether another provider issued everything that was left out. */
const isForeign = (reasons: Record<string, number> = {}) => Object.keys(reasons).length > 0 && Object.keys(reasons).every((reason) => reason.startsWith("foreign"));

const why = (reasons?: Record<string, number>) =>
  Object.entries(reasons ?? {})
    .map(([reason, times]) => `${times} elided: ${reason}`)
    .join("; ");

function Thought({ row, fate }: { row: ThoughtRow; fate?: ThoughtFate }) {
  const state = row.sealed || fate ? sealState(fate?.did) : row.whole ? "open" : "sealed";
  const tooltip = fate ? `${fate.did}, at turn ${fate.turn} of ${fate.model}` : row.sealed ? "sealed by its provider, not sent back yet" : "without a seal";
  return (
    <article class="row thought" aria-label="Thought">
      <header>
        <span class="label">{row.summary ? "Thought, summary" : "Thought"}</span>
        {row.discarded ? <span class="tag warn">discarded</span> : row.whole ? <Seal state={state} why={tooltip} size={row.sealed || undefined} /> : <span class="writing">thinking</span>}
        {fate && state === "elided" ? <small class="why">{plain(fate.did.replace(/^elided: /, ""))}</small> : null}
        <EventTime at={row.at} />
      </header>
      {row.text ? <LongText text={row.text} /> : row.whole && !row.discarded ? <p class="sealed">sealed by provider: {bytes(row.sealed)}</p> : null}
    </article>
  );
}

function Message({ row }: { row: MessageRow }) {
  const label = row.ephemeral ? "Ephemeral message" : row.role === "user" ? "User" : row.role === "assistant" ? (row.final ? "Final answer" : "Assistant") : row.role;
  return (
    <article class={`row message ${row.ephemeral ? "ephemeral" : row.role === "user" ? "user" : row.final ? "own final" : "own"}`} aria-label={label}>
      <header>
        <span class="label">{plain(label)}</span>
        {row.ephemeral ? <span class="tag warn">not in the thread</span> : null}
        {row.discarded ? <span class="tag warn">discarded</span> : row.whole ? null : <span class="writing">writing</span>}
        <EventTime at={row.at} />
      </header>
      <LongText text={row.text} />
    </article>
  );
}

const PHASES: Record<string, [tone: string, label: string]> = {
  start: ["live", "running"],
  progress: ["live", "running"],
  success: ["good", "done"],
  error: ["bad", "failed"],
  skipped: ["warn", "skipped"],
  waiting: ["warn", "waiting for approval"],
  rejected: ["bad", "rejected"],
  unknown: ["warn", "outcome unknown"],
};

/** The tool with which a model writes its plan. Plans have their own rows. */
const PLAN_TOOL = "manage_todo_list";

function Tool({ row }: { row: ToolRow }) {
  const [tone, label] = PHASES[row.outcome ?? row.phase] ?? ["dim", row.phase];
  const { approval } = row;
  return (
    <article class="row tool" aria-label={`Tool ${plain(row.name.slice(0, 100))}`}>
      <header>
        <span class="label">Tool</span>
        <code class="name">{plain(row.name.slice(0, 100))}</code>
        <span class={`status ${tone}`}>
          <i aria-hidden="true" />
          {label}
        </span>
        {approval && approval.status !== "pending" ? (
          <span class={`tag ${approval.status === "approved" ? "good" : "bad"}`}>
            {approval.status}
            {approval.by ? ` by ${plain(approval.by)}` : ""}
          </span>
        ) : null}
        {approval?.status === "pending" ? <a href={to("inbox")}>Decide</a> : null}
        {row.ms !== undefined ? <span class="number dim">{duration(row.ms)}</span> : null}
        <EventTime at={row.at} />
      </header>
      {row.args !== undefined && row.name !== PLAN_TOOL ? <Value label="arguments" value={row.args} /> : null}
      {row.error ? (
        <div class="value bad">
          <span>error</span>
          <LongText text={row.error} mono limit={800} />
        </div>
      ) : row.result !== undefined ? (
        <Value label="result" value={row.result} />
      ) : null}
      {approval?.comment ? (
        <div class="value">
          <span>comment</span>
          <LongText text={approval.comment} />
        </div>
      ) : null}
    </article>
  );
}

function Value({ label, value }: { label: string; value: unknown }) {
  const short = line(value);
  return (
    <div class="value">
      <span>{label}</span>
      <LongText text={short.length < 100 ? short : typeof value === "string" ? value : pretty(value)} mono limit={800} />
    </div>
  );
}

function Question({ row }: { row: QuestionRow }) {
  const answered = row.status === "answered";
  return (
    <article class="row question" aria-label="Question">
      <header>
        <span class="label">Question</span>
        <span class={`status ${answered ? "good" : row.status === "pending" ? "warn" : "dim"}`}>
          <i aria-hidden="true" />
          {answered ? `answered${row.by ? ` by ${plain(row.by)}` : ""}` : row.status === "pending" ? "waiting for an answer" : row.status}
        </span>
        {row.status === "pending" ? <a href={to("inbox")}>Answer</a> : null}
        <EventTime at={row.at} />
      </header>
      {row.questions.map((one) => {
        const answer = row.answers?.[one.question];
        const chosen = [...(answer?.values ?? []), ...(answer?.freeText ? [answer.freeText] : [])];
        return (
          <p>
            <bdi>{plain(one.question)}</bdi>
            {chosen.length ? (
              <strong>
                {" "}
                <bdi>{plain(chosen.join(", "))}</bdi>
              </strong>
            ) : null}
          </p>
        );
      })}
    </article>
  );
}

function PlanChange({ row }: { row: PlanRow }) {
  const done = row.steps.filter((step) => step.status === "completed").length;
  return (
    <article class="row change" aria-label="Plan">
      <header>
        <span class="label">Plan</span>
        <span class="number dim">
          {done} of {row.steps.length} done
        </span>
        <EventTime at={row.at} />
      </header>
      <PlanList steps={row.steps} />
    </article>
  );
}

function Note({ row }: { row: NoteRow }) {
  return (
    <div class={`row note ${row.tone}`}>
      <span class="label">{plain(row.name)}</span>
      <div>
        <LongText text={row.text} />
        {row.more ? (
          <details>
            <summary>More</summary>
            <LongText text={row.more} />
          </details>
        ) : null}
      </div>
      <EventTime at={row.at} />
    </div>
  );
}
