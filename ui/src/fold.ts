/**
 * Folds a run's events into the rows of its timeline. Each event is read once and changes as few
 * rows as possible.
 *
 * Attempts are counted as in `RunFold` on the server. All counts on the page come from the server.
 */

import type { NumberedEvent, RunEvent } from "./api";
import { duration } from "./format";
import type { Tokens } from "./types";

interface Base {
  key: string;
  at: string;
  /** Incremented with each change, so that only changed rows are drawn again. */
  rev: number;
}

export interface TurnRow extends Base {
  kind: "turn";
  turn: number;
  model?: string;
  purpose?: string;
  reason?: string;
  phase: "start" | "end" | "discarded";
  /** Number of the attempt within its turn, from 1. */
  attempt: number;
  usage?: Tokens;
  cost?: number;
  replay?: { kept: number; restored: number; reshaped: number; elided: number; why?: Record<string, number> };
}

export interface ThoughtRow extends Base {
  kind: "thought";
  id?: string;
  text: string;
  summary: boolean;
  sealed: number;
  whole: boolean;
  discarded?: boolean;
}

export interface MessageRow extends Base {
  kind: "message";
  role: string;
  text: string;
  ephemeral: boolean;
  whole: boolean;
  final?: boolean;
  discarded?: boolean;
}

export interface ToolRow extends Base {
  kind: "tool";
  name: string;
  phase: string;
  args?: unknown;
  result?: unknown;
  error?: string;
  /** "unknown" if the end of the call was not recorded. */
  outcome?: string;
  ms?: number;
  approval?: { status: string; by?: string; comment?: string };
}

export interface QuestionRow extends Base {
  kind: "question";
  status: string;
  questions: { question: string }[];
  answers?: Record<string, { values?: string[]; freeText?: string }>;
  by?: string;
}

export interface PlanStep {
  step: string;
  title?: string;
  status: string;
}

export interface PlanRow extends Base {
  kind: "plan";
  steps: PlanStep[];
}

/** Any other event, shown on one line. */
export interface NoteRow extends Base {
  kind: "note";
  name: string;
  tone: "" | "good" | "warn" | "bad";
  text: string;
  more?: string;
}

export type Row = TurnRow | ThoughtRow | MessageRow | ToolRow | QuestionRow | PlanRow | NoteRow;

type Note = [name: string, tone: NoteRow["tone"], text: string, more?: string];

/** Formats the events that have no row of their own kind as notes. */
const NOTES: Record<string, (event: RunEvent) => Note> = {
  run: ({ status, reason }) => ["Run", status === "failed" ? "bad" : status === "waiting" ? "warn" : "", `${status.charAt(0).toUpperCase()}${status.slice(1)}${reason ? `: ${reason}` : ""}`],
  reflection: (event) => ["Reflection", "", event.text],
  gate: (event) => ["Gate", event.phase === "recovered" ? "good" : event.phase === "failed" ? "bad" : "warn", describeGate(event), event.message],
  limit: (event) => ["Limit", "warn", `${event.limit} reached: ${event.actual} of ${event.allowed}`],
  summarization: (event) => ["Summary", "", `${event.messagesCompressed ?? "Older"} messages summarised: ${event.tokenCountBefore ?? "?"} tokens reduced to ${event.tokenCountAfter ?? "?"}`, event.summary],
  handoff: (event) => ["Handoff", "", `${event.from ?? "One agent"} handed over to ${event.to ?? "another agent"}`],
  guardrail: (event) => ["Guardrail", event.disposition === "block" ? "bad" : "warn", `${event.guardrailTitle ?? event.guardrailId ?? "Guardrail"}: ${event.disposition}${event.reason ? ` (${event.reason})` : ""}`],
  subagent: (event) => ["Subagent", event.phase === "error" ? "bad" : "", `${event.name}: ${event.phase}`, event.content ?? event.input],
  progress: (event) => ["Progress", "", event.message ?? event.stage ?? "In progress"],
  cancelled: (event) => ["Cancelled", "bad", `The run was cancelled${event.reason ? `: ${event.reason}` : ""}`],
  forgotten: (event) => ["Erased", "warn", `${event.count} events were erased: ${event.why}`],
};

export class Timeline {
  rows: Row[] = [];
  plan: PlanStep[] | null = null;
  status = "";
  tokens: Tokens | null = null;
  cost: number | null = null;
  toolCalls = 0;
  models: string[] = [];
  /** Number of `replay` events. */
  replays = 0;

  private turn: TurnRow | null = null;
  /**
   * The last discarded attempt. If an answer follows without `turn start`, as in older journals,
   * the answer starts a new attempt of the same turn.
   */
  private repeatable: TurnRow | null = null;
  /** Number of started attempts; part of row keys, because a repeated attempt reuses ids. */
  private started = 0;
  /** Number of attempts of the latest turn. */
  private attempts = { turn: 0, count: 0 };
  private byId = new Map<string, Row>();
  /** The time of the last event. */
  private last = "";

  private handlers: Record<string, (base: Base, event: RunEvent) => void> = {
    turn: (base, event) => this.onTurn(base, event),
    thought: (base, event) => this.onThought(base, event),
    stream: (base, event) => this.onStream(base, event),
    message: (base, event) => this.onMessage(base, event),
    tool_call: (base, event) => this.onTool(base, event),
    tool_approval: (base, event) => this.onApproval(base, event),
    user_question: (base, event) => this.onQuestion(base, event),
    plan: (base, event) => this.onPlan(base, event),
    usage: (_, event) => this.onUsage(event),
    replay: (_, event) => this.onReplay(event),
    finalAnswer: (base, event) => this.onAnswer(base, event),
    metadata: () => {},
  };

  apply({ n, at, event }: NumberedEvent) {
    const base = { key: `e${n}`, at, rev: 0 };
    if (this.repeatable && isAnswer(event)) this.startAttempt({ ...base, key: `a${n}` }, this.repeatable);
    if (["gate", "limit", "run"].includes(event.type)) this.repeatable = null;
    if (event.type === "run") this.status = event.status;
    if (this.showsCrash(event)) this.addCrash(base);
    this.last = at;
    const handler = this.handlers[event.type];
    if (handler) return handler(base, event);
    const [name, tone, text, more] = NOTES[event.type]?.(event) ?? [String(event.type), "", JSON.stringify(event)];
    this.rows.push({ ...base, kind: "note", name, tone, text: text ?? "", more });
  }

  /**
   * Returns whether an event shows that the driving process stopped and the run was resumed: the
   * partial answer was discarded, or the outcome of a started tool is unknown.
   */
  private showsCrash(event: RunEvent): boolean {
    if (event.type === "turn") return event.phase === "discarded" && /\bprocess\b.*\bexited\b/.test(event.reason ?? "");
    const id = event.type === "tool_call" ? event.id : event.type === "tool_approval" ? (event.toolCallId ?? event.id) : undefined;
    const tool = id === undefined ? undefined : (this.byId.get(`c${id}`) as ToolRow | undefined);
    const isStarted = tool?.phase === "start" || tool?.phase === "progress";
    return isStarted && (event.type === "tool_approval" ? event.status === "pending" : event.outcome === "unknown");
  }

  /** Adds rows for the end of the driving process and for the resumption by another one. */
  private addCrash({ key, at }: Base) {
    const stopped = this.last || at;
    const pause = Math.max(0, Date.parse(at) - Date.parse(stopped));
    this.rows.push({ key: `${key}.stopped`, at: stopped, rev: 0, kind: "note", name: "Process stopped", tone: "bad", text: "The process that drove this run stopped after its last stored event." });
    this.rows.push({ key: `${key}.resumed`, at, rev: 0, kind: "note", name: "Resumed", tone: "good", text: `A process resumed the run ${duration(pause)} after the last stored event.` });
  }

  /** Returns the row with this key, or adds a new row at `index`, and marks the row as changed. */
  private upsert<R extends Row>(key: string | null, create: () => R, index = this.rows.length): R {
    let row = key === null ? undefined : (this.byId.get(key) as R | undefined);
    if (!row) {
      row = create();
      this.rows.splice(index, 0, row);
      if (key !== null) this.byId.set(key, row);
    }
    row.rev += 1;
    return row;
  }

  private onTurn(base: Base, event: RunEvent) {
    if (event.phase === "start") {
      this.startAttempt(base, { turn: event.turn, model: event.model, purpose: event.purpose });
    } else if (this.turn) {
      this.turn.phase = event.phase;
      this.turn.reason = event.reason;
      this.turn.rev += 1;
      if (event.phase === "discarded") {
        this.discardPartial();
        this.repeatable = this.turn;
      }
      // Events between two attempts belong to neither.
      this.turn = null;
    }
  }

  /** Starts a model call: an attempt of a turn, a reflection or a summary. */
  private startAttempt(base: Base, { turn, model, purpose }: { turn: number; model?: string; purpose?: string }) {
    this.started += 1;
    this.repeatable = null;
    if (model && !this.models.includes(model)) this.models.push(model);
    const isAside = purpose === "reflection" || purpose === "summary";
    const attempt = isAside ? 1 : (this.attempts.turn === turn ? this.attempts.count : 0) + 1;
    if (!isAside) this.attempts = { turn, count: attempt };
    this.turn = { ...base, kind: "turn", turn, model, purpose, attempt, phase: "start" };
    this.rows.push(this.turn);
  }

  /** Marks the partial output of the turn as discarded. */
  private discardPartial() {
    for (const row of this.rows.slice(this.rows.lastIndexOf(this.turn!))) {
      if ((row.kind !== "thought" && row.kind !== "message") || row.whole) continue;
      row.whole = true;
      row.discarded = true;
      row.rev += 1;
    }
  }

  private onThought(base: Base, event: RunEvent) {
    const index = event.phase === "delta" ? this.rows.length : this.placeOfThought();
    const row = this.upsert(`t${this.started}.${event.id ?? ""}`, (): ThoughtRow => ({ ...base, kind: "thought", id: event.id, text: "", summary: false, sealed: 0, whole: false }), index);
    if (event.phase === "delta") {
      row.text += event.text ?? "";
    } else {
      row.text = event.text ?? "";
      row.sealed = event.sealedBytes ?? 0;
      row.summary = event.summary === true;
      row.whole = true;
    }
  }

  /** Returns the index at which to insert a complete Thought: before its turn's partial answer. */
  private placeOfThought(): number {
    const from = this.turn ? this.rows.lastIndexOf(this.turn) + 1 : this.rows.length;
    const isPartialAnswer = (row: Row) => row.kind === "message" && row.role === "assistant" && !row.whole;
    const index = this.rows.slice(from).findIndex(isPartialAnswer);
    return index < 0 ? this.rows.length : from + index;
  }

  private onStream(base: Base, event: RunEvent) {
    const row = this.upsert(`m${this.started}.${event.id ?? ""}`, (): MessageRow => ({ ...base, kind: "message", role: "assistant", text: "", ephemeral: false, whole: false }));
    row.text += event.text ?? "";
  }

  private onMessage(base: Base, event: RunEvent) {
    const key = event.id ? `m${this.started}.${event.id}` : null;
    const row = this.upsert(key, (): MessageRow => ({ ...base, kind: "message", role: event.role, text: "", ephemeral: event.ephemeral === true, whole: true }));
    row.text = event.content ?? "";
    row.whole = true;
  }

  /** Marks the last message as the final answer if the texts are equal, or adds a new message. */
  private onAnswer(base: Base, event: RunEvent) {
    const row = this.rows.findLast((one): one is MessageRow => one.kind === "message" && one.role === "assistant");
    if (row && row.text === event.content) {
      row.final = true;
      row.rev += 1;
    } else this.rows.push({ ...base, kind: "message", role: "assistant", text: event.content ?? "", ephemeral: false, whole: true, final: true });
  }

  private onTool(base: Base, event: RunEvent) {
    const row = this.upsert(event.id ? `c${event.id}` : null, (): ToolRow => ({ ...base, kind: "tool", name: event.name, phase: event.phase }));
    if (event.phase === "start") this.toolCalls += 1;
    row.phase = event.phase;
    if (event.args !== undefined) row.args = event.args;
    if (event.result !== undefined) row.result = event.result;
    if (event.error) row.error = event.error.message;
    row.outcome = event.outcome;
    if (event.durationMs !== undefined) row.ms = event.durationMs;
  }

  private onApproval(base: Base, event: RunEvent) {
    const row = this.upsert(`c${event.toolCallId ?? event.id}`, (): ToolRow => ({ ...base, kind: "tool", name: event.toolName, phase: "waiting", args: event.args }));
    row.approval = { status: event.status, by: event.decidedBy, comment: event.comment };
    if (row.phase === "waiting" && event.status === "rejected") row.phase = "rejected";
  }

  private onQuestion(base: Base, event: RunEvent) {
    const row = this.upsert(`q${event.id}`, (): QuestionRow => ({ ...base, kind: "question", status: event.status, questions: event.questions ?? [] }));
    row.status = event.status;
    row.answers = event.answers ?? row.answers;
    row.by = event.answeredBy ?? row.by;
  }

  private onPlan(base: Base, event: RunEvent) {
    if (!event.todoList) return;
    this.plan = event.todoList;
    if (event.operation !== "read") this.rows.push({ ...base, kind: "plan", steps: event.todoList });
  }

  private onUsage(event: RunEvent) {
    this.tokens = event.total ?? this.tokens;
    this.cost = event.totalCostUsd ?? this.cost;
    if (!this.turn) return;
    this.turn.usage = event.usage;
    this.turn.cost = event.costUsd;
    this.turn.rev += 1;
  }

  private onReplay(event: RunEvent) {
    const { kept = 0, restored = 0, reshaped = 0, elided = 0, why } = event;
    this.replays += 1;
    if (!this.turn) return;
    this.turn.replay = { kept, restored, reshaped, elided, why };
    this.turn.rev += 1;
  }
}

/** Returns whether an event is part of a model's answer. */
function isAnswer(event: RunEvent): boolean {
  return ["thought", "stream", "usage", "replay"].includes(event.type) || (event.type === "turn" && event.phase !== "start");
}

function describeGate(event: RunEvent): string {
  const source = event.fromModel ? ` ${event.fromModel}` : "";
  if (event.phase === "recovered") return `Attempt ${event.attempt} was accepted.`;
  if (event.phase === "failed") return `No response was accepted after ${event.attempt} attempts.`;
  const next = event.toModel && event.toModel !== event.fromModel ? `retrying with ${event.toModel}` : "retrying";
  return `Attempt ${event.attempt} by${source || " the model"} was rejected; ${next}.`;
}
