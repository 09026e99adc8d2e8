/** The rows of a timeline. */

import { Component, type ComponentChildren } from "preact";
import { bytes, clock, compact, dollars, duration, exact, line, plain, pretty } from "../format";
import { Copy, Dot, LongText, Seal, sealState } from "../parts";
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
  if (row.kind === "thought" || row.kind === "message") return 60 + Math.min(14, Math.ceil(row.text.length / 90)) * 22;
  return row.kind === "tool" ? 84 : row.kind === "turn" ? 44 : 48;
}

interface Props {
  row: Row;
  rev: number;
  fate?: ThoughtFate;
}

/** A timeline row that is drawn again only after it has changed. */
export class DrawRow extends Component<Props> {
  shouldComponentUpdate(next: Props) {
    return next.row !== this.props.row || next.rev !== this.props.rev || next.fate?.did !== this.props.fate?.did;
  }

  render({ row, fate }: Props) {
    switch (row.kind) {
      case "turn": return <Turn row={row} />;
      case "thought": return <Thought row={row} fate={fate} />;
      case "message": return <Message row={row} />;
      case "tool": return <Tool row={row} />;
      case "question": return <Question row={row} />;
      case "plan": return <PlanChange row={row} />;
      case "note": return <Note row={row} />;
    }
  }
}

function EventTime({ at }: { at: string }) {
  return <time dateTime={at} title={exact(at)}>{clock(at)}</time>;
}

interface FrameProps {
  row: Row;
  /** The CSS classes of the row. */
  kind: string;
  /** The visible label; `name` labels the row for screen readers, by default with the same text. */
  label: string;
  name?: string;
  /** Marks in the header, after the label. */
  marks: ComponentChildren;
  children?: ComponentChildren;
}

/** A row with a header: label, marks and time. */
function Frame({ row, kind, label, name = label, marks, children }: FrameProps) {
  return (
    <article class={`row ${kind}`} aria-label={name}>
      <header>
        <span class="label">{plain(label)}</span>
        {marks}
        <EventTime at={row.at} />
      </header>
      {children}
    </article>
  );
}

const Discarded = () => <span class="tag warn">discarded</span>;

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
        {replay && replay.kept ? <Seal state="intact" times={replay.kept} why={`Thoughts that were sent back unchanged: ${replay.kept}`} /> : null}
        {replay && replay.restored ? <Seal state="restored" times={replay.restored} why={`Thoughts that were missing and were restored: ${replay.restored}`} /> : null}
        {replay && replay.elided ? <Seal state={isForeign(replay.why) ? "foreign" : "elided"} times={replay.elided} why={formatReasons(replay.why)} /> : null}
        {usage ? (
          <span class="number" title="input and output tokens">{compact(usage.inputTokens ?? 0)} → {compact(usage.outputTokens ?? 0)}</span>
        ) : null}
        {row.cost !== undefined ? <span class="number">{dollars(row.cost)}</span> : null}
        <EventTime at={row.at} />
      </span>
    </div>
  );
}

/** Returns whether all elided Thoughts were left out because another provider issued them. */
const isForeign = (reasons: Record<string, number> = {}) => Object.keys(reasons).length > 0 && Object.keys(reasons).every((reason) => reason.startsWith("foreign"));

const formatReasons = (reasons?: Record<string, number>) =>
  Object.entries(reasons ?? {})
    .map(([reason, times]) => `${times} elided: ${reason}`)
    .join("; ");

function Thought({ row, fate }: { row: ThoughtRow; fate?: ThoughtFate }) {
  const state = row.sealed || fate ? sealState(fate?.did) : row.whole ? "open" : "sealed";
  const tooltip = fate ? `${fate.did}, at turn ${fate.turn} of ${fate.model}` : row.sealed ? "sealed by the provider, not sent back yet" : "without a Seal";
  const marks = (
    <>
      {row.discarded ? <Discarded /> : row.whole ? <Seal state={state} why={tooltip} size={row.sealed || undefined} /> : <span class="writing">thinking</span>}
      {fate && state === "elided" ? <small class="why">{plain(fate.did.replace(/^elided: /, ""))}</small> : null}
    </>
  );
  return (
    <Frame row={row} kind="thought" label={row.summary ? "Thought summary" : "Thought"} name="Thought" marks={marks}>
      {row.text ? <LongText text={row.text} /> : row.whole && !row.discarded ? <p class="sealed">sealed by provider: {bytes(row.sealed)}</p> : null}
    </Frame>
  );
}

function Message({ row }: { row: MessageRow }) {
  const label = row.ephemeral ? "Ephemeral message" : row.role === "user" ? "User" : row.role === "assistant" ? (row.final ? "Final answer" : "Assistant") : row.role;
  const kind = row.ephemeral ? "ephemeral" : row.role === "user" ? "user" : row.final ? "own final" : "own";
  const marks = (
    <>
      {row.ephemeral ? <span class="tag warn">not in the Thread</span> : null}
      {row.discarded ? <Discarded /> : row.whole ? null : <span class="writing">writing</span>}
    </>
  );
  return (
    <Frame row={row} kind={`message ${kind}`} label={label} marks={marks}>
      <LongText text={row.text} />
    </Frame>
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

/** Moves to the pending requests of the run, which are above the timeline. */
function DecideLink({ label }: { label: string }) {
  const open = () => {
    const box = document.querySelector<HTMLElement>(".decide");
    box?.scrollIntoView({ block: "start" });
    box?.focus();
  };
  return <button class="more" onClick={open}>{label}</button>;
}

function Tool({ row }: { row: ToolRow }) {
  const { approval } = row;
  // A call whose approval was never decided did not run, for example because the run was cancelled.
  const isDropped = approval?.status === "pending" && row.phase === "error";
  const [tone, label] = isDropped ? ["dim", "not run"] : (PHASES[row.outcome ?? row.phase] ?? ["dim", row.phase]);
  const name = plain(row.name.slice(0, 100));
  const marks = (
    <>
      <code class="name">{name}</code>
      <Dot tone={tone}>{label}</Dot>
      {approval && approval.status !== "pending" ? (
        <span class={`tag ${approval.status === "approved" ? "good" : "bad"}`}>
          {approval.status}
          {approval.by ? ` by ${plain(approval.by)}` : ""}
        </span>
      ) : null}
      {approval?.status === "pending" && !isDropped ? <DecideLink label="Decide" /> : null}
      {row.ms !== undefined ? <span class="number dim">{duration(row.ms)}</span> : null}
    </>
  );
  return (
    <Frame row={row} kind="tool" label="Tool" name={`Tool ${name}`} marks={marks}>
      {row.args !== undefined && row.name !== PLAN_TOOL ? <Value label="arguments" value={row.args} /> : null}
      {row.error ? <Value label="error" text={row.error} tone="bad" /> : row.result !== undefined ? <Value label="result" value={row.result} /> : null}
      {approval?.comment ? <Value label="comment" text={approval.comment} isProse /> : null}
    </Frame>
  );
}

/** A labelled value: `text` as it is, or `value` as JSON, indented if it is long. */
function Value({ label, text, value, tone, isProse }: { label: string; text?: string; value?: unknown; tone?: string; isProse?: boolean }) {
  const short = line(value);
  return (
    <div class={tone ? `value ${tone}` : "value"}>
      <span>{label}</span>
      <div>
        <LongText text={text ?? (short.length < 100 ? short : typeof value === "string" ? value : pretty(value))} mono={!isProse} limit={isProse ? undefined : 800} />
        {isProse ? null : <Copy text={text ?? (typeof value === "string" ? value : JSON.stringify(value, null, 2))} label={`Copy ${label}`} />}
      </div>
    </div>
  );
}

function Question({ row }: { row: QuestionRow }) {
  const isPending = row.status === "pending";
  const label = row.status === "answered" ? `answered${row.by ? ` by ${plain(row.by)}` : ""}` : isPending ? "waiting for an answer" : row.status;
  const marks = (
    <>
      <Dot tone={row.status === "answered" ? "good" : isPending ? "warn" : "dim"}>{label}</Dot>
      {isPending ? <DecideLink label="Answer" /> : null}
    </>
  );
  return (
    <Frame row={row} kind="question" label="Question" marks={marks}>
      {row.questions.map((one) => {
        const { values = [], freeText } = row.answers?.[one.question] ?? {};
        const chosen = freeText ? [...values, freeText] : values;
        return (
          <p>
            <bdi>{plain(one.question)}</bdi>
            {chosen.length ? <strong> <bdi>{plain(chosen.join(", "))}</bdi></strong> : null}
          </p>
        );
      })}
    </Frame>
  );
}

function PlanChange({ row }: { row: PlanRow }) {
  const done = row.steps.filter((step) => step.status === "completed").length;
  return (
    <Frame row={row} kind="change" label="Plan" marks={<span class="number dim">{done} of {row.steps.length} done</span>}>
      <PlanList steps={row.steps} />
    </Frame>
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
