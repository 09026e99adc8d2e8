/**
 * A run's events, folded into the rows of its timeline. Each event is read once, and changes as few rows as possible.
 *
 * Attempts are folded as the server folds them (`RunFold`). All counts on the page come from the server.
 */

import type { Told } from "./api";
import type { Tokens } from "./types";

interface Base {
  key: string;
  n: number;
  at: string;
  /** Grows with each change, so that a row is drawn again only then. */
  rev: number;
}

export interface TurnRow extends Base {
  kind: "turn";
  turn: number;
  model?: string;
  purpose?: string;
  reason?: string;
  phase: "start" | "end" | "discarded";
  /** The position among the attempts of the turn, counted from 1. */
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
  /** "unknown" where the end of the call was not recorded. */
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

/** Something that happened, in a line: what it is called, how grave it is, and what is said of it. */
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
  /** How often a request told what became of its thoughts. */
  replays = 0;

  private turn: TurnRow | null = null;
  /** The discarded attempt that the next part of an answer would repeat: older journals have no `turn start` for it. */
  private repeatable: TurnRow | null = null;
  /** How many attempts began: what is said again after it was thrown away has the same names. */
  private begun = 0;
  /** How many attempts the last turn has. */
  private attempts = { turn: 0, count: 0 };
  private byId = new Map<string, Row>();

  take(told: Told) {
    const { n, at, said } = told;
    this.events += 1;
    this.last = n;
    const base = { key: `e${n}`, n, at, rev: 0 };
    if (this.repeatable && isAnswer(said)) this.begin({ ...base, key: `a${n}` }, this.repeatable);
    if (["gate", "limit", "run"].includes(said.type)) this.repeatable = null;
    switch (said.type) {
      case "turn":
        return this.onTurn(base, said);
      case "thought":
        return this.onThought(base, said);
      case "stream":
        return this.onStream(base, said);
      case "message":
        return this.onMessage(base, said);
      case "tool_call":
        return this.onTool(base, said);
      case "tool_approval":
        return this.onApproval(base, said);
      case "user_question":
        return this.onQuestion(base, said);
      case "plan":
        return this.onPlan(base, said);
      case "usage":
        return this.onUsage(said);
      case "replay":
        return this.onReplay(said);
      case "run":
        this.status = said.status;
        this.reason = said.reason ?? "";
        return this.note(base, "Run", said.status === "failed" ? "bad" : said.status === "waiting" ? "warn" : "", said.status === "running" ? "The run is at work." : `The run is ${said.status}${said.reason ? `: ${said.reason}` : "."}`);
      case "finalAnswer":
        return this.onAnswer(base, said);
      case "reflection":
        return this.note(base, "Reflection", "", said.text);
      case "gate":
        return this.note(base, "Gate", said.phase === "recovered" ? "good" : said.phase === "failed" ? "bad" : "warn", gate(said), said.message);
      case "limit":
        return this.note(base, "Limit", "warn", `${said.limit}: ${said.actual} of ${said.allowed} are used.`);
      case "summarization":
        return this.note(base, "Summary", "", `${said.messagesCompressed ?? "Older"} messages were summarised: ${said.tokenCountBefore ?? "?"} tokens became ${said.tokenCountAfter ?? "?"}.`, said.summary);
      case "handoff":
        return this.note(base, "Handoff", "", `${said.from ?? "One agent"} handed over to ${said.to ?? "another"}.`);
      case "guardrail":
        return this.note(base, "Guardrail", said.disposition === "block" ? "bad" : "warn", `${said.guardrailTitle ?? said.guardrailId ?? "A guardrail"} says ${said.disposition}${said.reason ? `: ${said.reason}` : "."}`);
      case "subagent":
        return this.note(base, "Helper", said.phase === "error" ? "bad" : "", `${said.name}: ${said.phase}`, said.content ?? said.input);
      case "progress":
        return this.note(base, "Progress", "", said.message ?? said.stage ?? "It goes on.");
      case "cancelled":
        return this.note(base, "Stopped", "bad", `The run was stopped${said.reason ? `: ${said.reason}` : "."}`);
      case "metadata":
        return;
      case "forgotten":
        return this.note(base, "Forgotten", "warn", `${said.count} events are no more: ${said.why}.`);
      default:
        return this.note(base, String(said.type), "", JSON.stringify(said));
    }
  }

  private push(row: Row): Row {
    this.rows.push(row);
    return row;
  }

  private note(base: Base, name: string, tone: NoteRow["tone"], text: string, more?: string) {
    this.push({ ...base, kind: "note", name, tone, text: text ?? "", more });
  }

  private onTurn(base: Base, said: Told["said"]) {
    if (said.phase === "start") {
      this.begin(base, { turn: said.turn, model: said.model, purpose: said.purpose });
    } else if (this.turn) {
      this.turn.phase = said.phase;
      this.turn.reason = said.reason;
      this.turn.rev += 1;
      if (said.phase === "discarded") {
        this.throwAway();
        this.repeatable = this.turn;
      }
      // What comes next belongs to no attempt until one starts.
      this.turn = null;
    }
  }

  /** A model call starts: an attempt of a turn, or a reflection or summary. */
  private begin(base: Base, { turn, model, purpose }: { turn: number; model?: string; purpose?: string }) {
    this.begun += 1;
    this.repeatable = null;
    if (model && !this.models.includes(model)) this.models.push(model);
    const isAside = purpose === "reflection" || purpose === "summary";
    const attempt = isAside ? 1 : (this.attempts.turn === turn ? this.attempts.count : 0) + 1;
    if (!isAside) this.attempts = { turn, count: attempt };
    this.turn = { ...base, kind: "turn", turn, model, purpose, attempt, phase: "start" };
    this.push(this.turn);
  }

  /** What the turn had said so far comes no further. */
  private throwAway() {
    for (const row of this.rows.slice(this.rows.lastIndexOf(this.turn!))) {
      if ((row.kind !== "thought" && row.kind !== "message") || row.whole) continue;
      row.whole = true;
      row.discarded = true;
      row.rev += 1;
    }
  }

  private onThought(base: Base, said: Told["said"]) {
    const key = `t${this.begun}.${said.id ?? ""}`;
    let row = this.byId.get(key) as ThoughtRow | undefined;
    if (!row) {
      row = { ...base, kind: "thought", id: said.id, turn: said.turn, text: "", summary: false, sealed: 0, whole: false };
      this.byId.set(key, row);
      this.rows.splice(said.phase === "delta" ? this.rows.length : this.placeOfThought(), 0, row);
    }
    if (said.phase === "delta") {
      row.text += said.text ?? "";
    } else {
      row.text = said.text ?? "";
      row.sealed = said.sealedBytes ?? 0;
      row.summary = said.summary === true;
      row.whole = true;
    }
    row.rev += 1;
  }

  /** A thought comes before what it led to: what its turn is still saying. One that is told whole comes after those pieces. */
  private placeOfThought(): number {
    const from = this.turn ? this.rows.lastIndexOf(this.turn) + 1 : this.rows.length;
    const isSaid = (row: Row) => row.kind === "message" && row.role === "assistant" && !row.whole;
    const place = this.rows.slice(from).findIndex(isSaid);
    return place < 0 ? this.rows.length : from + place;
  }

  private onStream(base: Base, said: Told["said"]) {
    const key = `m${this.begun}.${said.id ?? ""}`;
    let row = this.byId.get(key) as MessageRow | undefined;
    if (!row) {
      row = { ...base, kind: "message", role: "assistant", text: "", ephemeral: false, whole: false };
      this.byId.set(key, this.push(row));
    }
    row.text += said.text ?? "";
    row.rev += 1;
  }

  private onMessage(base: Base, said: Told["said"]) {
    const key = `m${this.begun}.${said.id ?? ""}`;
    const known = said.id ? (this.byId.get(key) as MessageRow | undefined) : undefined;
    if (known) {
      known.text = said.content;
      known.whole = true;
      known.rev += 1;
      return;
    }
    const row: MessageRow = { ...base, kind: "message", role: said.role, text: said.content ?? "", ephemeral: said.ephemeral === true, whole: true };
    this.push(row);
    if (said.id) this.byId.set(key, row);
  }

  /** The last answer was told before, as the message that it is. */
  private onAnswer(base: Base, said: Told["said"]) {
    const row = this.rows.findLast((one): one is MessageRow => one.kind === "message" && one.role === "assistant");
    if (row && row.text === said.content) {
      row.final = true;
      row.rev += 1;
    } else this.push({ ...base, kind: "message", role: "assistant", text: said.content ?? "", ephemeral: false, whole: true, final: true });
  }

  private onTool(base: Base, said: Told["said"]) {
    let row = said.id ? (this.byId.get(`c${said.id}`) as ToolRow | undefined) : undefined;
    if (!row) {
      row = { ...base, kind: "tool", id: said.id, name: said.name, phase: said.phase };
      this.push(row);
      if (said.id) this.byId.set(`c${said.id}`, row);
    }
    if (said.phase === "start") this.toolCalls += 1;
    row.phase = said.phase;
    if (said.args !== undefined) row.args = said.args;
    if (said.result !== undefined) row.result = said.result;
    if (said.error) row.error = said.error.message;
    row.outcome = said.outcome;
    if (said.durationMs !== undefined) row.ms = said.durationMs;
    row.rev += 1;
  }

  private onApproval(base: Base, said: Told["said"]) {
    const key = `c${said.toolCallId ?? said.id}`;
    let row = this.byId.get(key) as ToolRow | undefined;
    if (!row) {
      row = { ...base, kind: "tool", id: said.toolCallId, name: said.toolName, phase: "waiting", args: said.args };
      this.byId.set(key, this.push(row));
    }
    row.approval = { ...row.approval, status: said.status, id: said.id, by: said.decidedBy, comment: said.comment };
    if (said.status === "approved" && said.args !== undefined) row.approval.args = said.args;
    if (row.phase === "waiting" && said.status === "rejected") row.phase = "rejected";
    row.rev += 1;
  }

  private onQuestion(base: Base, said: Told["said"]) {
    let row = this.byId.get(`q${said.id}`) as QuestionRow | undefined;
    if (!row) {
      row = { ...base, kind: "question", id: said.id, status: said.status, questions: said.questions ?? [] };
      this.byId.set(`q${said.id}`, this.push(row));
    }
    row.status = said.status;
    row.answers = said.answers ?? row.answers;
    row.by = said.answeredBy ?? row.by;
    row.rev += 1;
  }

  private onPlan(base: Base, said: Told["said"]) {
    if (!said.todoList) return;
    this.plan = said.todoList;
    if (said.operation === "read") return;
    this.push({ ...base, kind: "plan", steps: said.todoList, operation: said.operation ?? "write" });
  }

  private onUsage(said: Told["said"]) {
    this.tokens = said.total ?? this.tokens;
    this.cost = said.totalCostUsd ?? this.cost;
    if (!this.turn) return;
    this.turn.usage = said.usage;
    this.turn.cost = said.costUsd;
    this.turn.rev += 1;
  }

  private onReplay(said: Told["said"]) {
    const { kept = 0, restored = 0, reshaped = 0, elided = 0, why } = said;
    this.replays += 1;
    if (!this.turn) return;
    this.turn.replay = { kept, restored, reshaped, elided, why };
    this.turn.rev += 1;
  }
}

/** Whether an event is part of a model's answer. */
function isAnswer(said: Told["said"]): boolean {
  return ["thought", "stream", "usage", "replay"].includes(said.type) || (said.type === "turn" && said.phase !== "start");
}

function gate(said: Told["said"]): string {
  const where = said.fromModel ? ` ${said.fromModel}` : "";
  if (said.phase === "recovered") return `It answered as it had to, at attempt ${said.attempt}.`;
  if (said.phase === "failed") return `It never answered as it had to, in ${said.attempt} attempts.`;
  const next = said.toModel && said.toModel !== said.fromModel ? `, and ${said.toModel} is asked next` : ", and it is asked again";
  return `Attempt ${said.attempt} of${where || " the model"} did not pass${next}.`;
}
