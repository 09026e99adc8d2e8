/**
 * Folds a run's events into the rows of its timeline. Each event is read once and changes as few
 * rows as possible.
 *
 * Attempts are folded as the server folds them (`RunFold`). All counts on the page come from the
 * server.
 */

import type { NumberedEvent, RunEvent } from "./api";
import type { Tokens } from "./types";

interface Base {
  key: string;
  n: number;
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
  turn: number;
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
  id?: string;
  name: string;
  phase: string;
  args?: unknown;
  result?: unknown;
  error?: string;
  /** "unknown" if the end of the call was not recorded. */
  outcome?: string;
  ms?: number;
  approval?: { status: string; id: string; by?: string; comment?: string; args?: unknown };
}

export interface QuestionRow extends Base {
  kind: "question";
  id: string;
  status: string;
  questions: { question: string }[];
  answers?: Record<string, { values?: string[]; freeText?: string }>;
  by?: string;
}

export interface PlanStep {
  id: number;
  step: string;
  title?: string;
  status: string;
}

export interface PlanRow extends Base {
  kind: "plan";
  steps: PlanStep[];
  operation: string;
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

export class Timeline {
  rows: Row[] = [];
  plan: PlanStep[] | null = null;
  status = "";
  reason = "";
  tokens: Tokens | null = null;
  cost: number | null = null;
  events = 0;
  last = 0;
  toolCalls = 0;
  models: string[] = [];
  /** Number of `replay` events. */
  replays = 0;

  private turn: TurnRow | null = null;
  /** A discarded attempt that the next answer repeats: older journals have no `turn start` here. */
  private repeatable: TurnRow | null = null;
  /** Number of started attempts: a repeated attempt reuses the ids of the discarded one. */
  private started = 0;
  /** Number of attempts of the latest turn. */
  private attempts = { turn: 0, count: 0 };
  private byId = new Map<string, Row>();

  apply(numbered: NumberedEvent) {
    const { n, at, said: event } = numbered;
    this.events += 1;
    this.last = n;
    const base = { key: `e${n}`, n, at, rev: 0 };
    if (this.repeatable && isAnswer(event)) this.startAttempt({ ...base, key: `a${n}` }, this.repeatable);
    if (["gate", "limit", "run"].includes(event.type)) this.repeatable = null;
    switch (event.type) {
      case "turn":
        return this.onTurn(base, event);
      case "thought":
        return this.onThought(base, event);
      case "stream":
        return this.onStream(base, event);
      case "message":
        return this.onMessage(base, event);
      case "tool_call":
        return this.onTool(base, event);
      case "tool_approval":
        return this.onApproval(base, event);
      case "user_question":
        return this.onQuestion(base, event);
      case "plan":
        return this.onPlan(base, event);
      case "usage":
        return this.onUsage(event);
      case "replay":
        return this.onReplay(event);
      case "run":
        this.status = event.status;
        this.reason = event.reason ?? "";
        return this.note(base, "Run", event.status === "failed" ? "bad" : event.status === "waiting" ? "warn" : "", `${event.status.charAt(0).toUpperCase()}${event.status.slice(1)}${event.reason ? `: ${event.reason}` : ""}`);
      case "finalAnswer":
        return this.onAnswer(base, event);
      case "reflection":
        return this.note(base, "Reflection", "", event.text);
      case "gate":
        return this.note(base, "Gate", event.phase === "recovered" ? "good" : event.phase === "failed" ? "bad" : "warn", describeGate(event), event.message);
      case "limit":
        return this.note(base, "Limit", "warn", `${event.limit} reached: ${event.actual} of ${event.allowed}`);
      case "summarization":
        return this.note(base, "Summary", "", `${event.messagesCompressed ?? "Older"} messages summarised: ${event.tokenCountBefore ?? "?"} tokens reduced to ${event.tokenCountAfter ?? "?"}`, event.summary);
      case "handoff":
        return this.note(base, "Handoff", "", `${event.from ?? "One agent"} handed over to ${event.to ?? "another agent"}`);
      case "guardrail":
        return this.note(base, "Guardrail", event.disposition === "block" ? "bad" : "warn", `${event.guardrailTitle ?? event.guardrailId ?? "Guardrail"}: ${event.disposition}${event.reason ? ` (${event.reason})` : ""}`);
      case "subagent":
        return this.note(base, "Subagent", event.phase === "error" ? "bad" : "", `${event.name}: ${event.phase}`, event.content ?? event.input);
      case "progress":
        return this.note(base, "Progress", "", event.message ?? event.stage ?? "In progress");
      case "cancelled":
        return this.note(base, "Cancelled", "bad", `The run was cancelled${event.reason ? `: ${event.reason}` : ""}`);
      case "metadata":
        return;
      case "forgotten":
        return this.note(base, "Erased", "warn", `${event.count} events were erased: ${event.why}`);
      default:
        return this.note(base, String(event.type), "", JSON.stringify(event));
    }
  }

  private push(row: Row): Row {
    this.rows.push(row);
    return row;
  }

  private note(base: Base, name: string, tone: NoteRow["tone"], text: string, more?: string) {
    this.push({ ...base, kind: "note", name, tone, text: text ?? "", more });
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
      // Events belong to no attempt until the next one starts.
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
    this.push(this.turn);
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
    const key = `t${this.started}.${event.id ?? ""}`;
    let row = this.byId.get(key) as ThoughtRow | undefined;
    if (!row) {
      row = { ...base, kind: "thought", id: event.id, turn: event.turn, text: "", summary: false, sealed: 0, whole: false };
      this.byId.set(key, row);
      this.rows.splice(event.phase === "delta" ? this.rows.length : this.placeOfThought(), 0, row);
    }
    if (event.phase === "delta") {
      row.text += event.text ?? "";
    } else {
      row.text = event.text ?? "";
      row.sealed = event.sealedBytes ?? 0;
      row.summary = event.summary === true;
      row.whole = true;
    }
    row.rev += 1;
  }

  /** Returns the position of a complete Thought: before the partial answer of its turn. */
  private placeOfThought(): number {
    const from = this.turn ? this.rows.lastIndexOf(this.turn) + 1 : this.rows.length;
    const isPartialAnswer = (row: Row) => row.kind === "message" && row.role === "assistant" && !row.whole;
    const place = this.rows.slice(from).findIndex(isPartialAnswer);
    return place < 0 ? this.rows.length : from + place;
  }

  private onStream(base: Base, event: RunEvent) {
    const key = `m${this.started}.${event.id ?? ""}`;
    let row = this.byId.get(key) as MessageRow | undefined;
    if (!row) {
      row = { ...base, kind: "message", role: "assistant", text: "", ephemeral: false, whole: false };
      this.byId.set(key, this.push(row));
    }
    row.text += event.text ?? "";
    row.rev += 1;
  }

  private onMessage(base: Base, event: RunEvent) {
    const key = `m${this.started}.${event.id ?? ""}`;
    const known = event.id ? (this.byId.get(key) as MessageRow | undefined) : undefined;
    if (known) {
      known.text = event.content;
      known.whole = true;
      known.rev += 1;
      return;
    }
    const row: MessageRow = { ...base, kind: "message", role: event.role, text: event.content ?? "", ephemeral: event.ephemeral === true, whole: true };
    this.push(row);
    if (event.id) this.byId.set(key, row);
  }

  /** Marks the message that is the final answer, or adds it. */
  private onAnswer(base: Base, event: RunEvent) {
    const row = this.rows.findLast((one): one is MessageRow => one.kind === "message" && one.role === "assistant");
    if (row && row.text === event.content) {
      row.final = true;
      row.rev += 1;
    } else this.push({ ...base, kind: "message", role: "assistant", text: event.content ?? "", ephemeral: false, whole: true, final: true });
  }

  private onTool(base: Base, event: RunEvent) {
    let row = event.id ? (this.byId.get(`c${event.id}`) as ToolRow | undefined) : undefined;
    if (!row) {
      row = { ...base, kind: "tool", id: event.id, name: event.name, phase: event.phase };
      this.push(row);
      if (event.id) this.byId.set(`c${event.id}`, row);
    }
    if (event.phase === "start") this.toolCalls += 1;
    row.phase = event.phase;
    if (event.args !== undefined) row.args = event.args;
    if (event.result !== undefined) row.result = event.result;
    if (event.error) row.error = event.error.message;
    row.outcome = event.outcome;
    if (event.durationMs !== undefined) row.ms = event.durationMs;
    row.rev += 1;
  }

  private onApproval(base: Base, event: RunEvent) {
    const key = `c${event.toolCallId ?? event.id}`;
    let row = this.byId.get(key) as ToolRow | undefined;
    if (!row) {
      row = { ...base, kind: "tool", id: event.toolCallId, name: event.toolName, phase: "waiting", args: event.args };
      this.byId.set(key, this.push(row));
    }
    row.approval = { ...row.approval, status: event.status, id: event.id, by: event.decidedBy, comment: event.comment };
    if (event.status === "approved" && event.args !== undefined) row.approval.args = event.args;
    if (row.phase === "waiting" && event.status === "rejected") row.phase = "rejected";
    row.rev += 1;
  }

  private onQuestion(base: Base, event: RunEvent) {
    let row = this.byId.get(`q${event.id}`) as QuestionRow | undefined;
    if (!row) {
      row = { ...base, kind: "question", id: event.id, status: event.status, questions: event.questions ?? [] };
      this.byId.set(`q${event.id}`, this.push(row));
    }
    row.status = event.status;
    row.answers = event.answers ?? row.answers;
    row.by = event.answeredBy ?? row.by;
    row.rev += 1;
  }

  private onPlan(base: Base, event: RunEvent) {
    if (!event.todoList) return;
    this.plan = event.todoList;
    if (event.operation === "read") return;
    this.push({ ...base, kind: "plan", steps: event.todoList, operation: event.operation ?? "write" });
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
  const where = event.fromModel ? ` ${event.fromModel}` : "";
  if (event.phase === "recovered") return `Attempt ${event.attempt} was accepted.`;
  if (event.phase === "failed") return `No answer was accepted in ${event.attempt} attempts.`;
  const next = event.toModel && event.toModel !== event.fromModel ? `retrying with ${event.toModel}` : "retrying";
  return `Attempt ${event.attempt} of${where || " the model"} was rejected; ${next}.`;
}
