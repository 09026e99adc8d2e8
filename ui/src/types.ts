/** Types of the members of the server's JSON that the console uses. */

export interface Thoughts {
  received: number;
  sealed_bytes: number;
  kept: number;
  restored: number;
  reshaped: number;
  elided: number;
}

export interface Tokens {
  inputTokens?: number;
  outputTokens?: number;
  reasoningTokens?: number;
  totalTokens?: number;
}

/** The counts of a run. The server computes them, so all pages and traces show the same counts. */
export interface RunCounts {
  turns: number;
  attempts: number;
  discarded: number;
  tools: number;
  thoughts: Thoughts;
}

export interface RunRow extends RunCounts {
  id: string;
  status: string;
  title?: string;
  models: string[];
  tokens: Tokens | null;
  cost_usd: number | null;
  created: string;
  updated: string;
  /** Whether the run has the status `running`, but no process drives it. */
  interrupted?: boolean;
  gone?: string;
}

/** The state of a run. For an erased run, only the ids are set. */
export interface RunHead extends Partial<RunCounts> {
  id: string;
  thread: string;
  status: string;
  model?: string;
  tokens?: Tokens;
  cost_usd?: number;
  created: string;
  updated?: string;
  interrupted?: boolean;
  /** Why the run ended. */
  reason?: string;
  missing_tools?: string[];
  limits?: { name: string; used: number; allowed: number }[];
  gone?: string;
}

export interface CallRow {
  id: string;
  thread: string;
  at: string;
  dialect: string;
  model?: string;
  status?: number;
  error?: string;
  audit?: string;
  /** The start of the conversation. */
  title?: string;
  fate_counts?: { kept: number; restored: number; elided: number; restored_items: number };
  usage?: { input: number; cached: number; written: number; output: number; thought: number };
  cost?: any;
  target?: { wire?: string; model?: string };
  answer?: { stop?: string };
  microseconds?: number;
  /** Time to the first byte of the response, in microseconds. */
  first_byte?: number;
}

export interface ThreadRow {
  id: string;
  kind: "agent" | "gateway" | "kept";
  title?: string;
  records: number;
  bytes: number;
  updated: string;
  created: string;
  /** The Thread whose history a fork shares. */
  forked_from?: string;
  gone?: string;
}

/** A Thread that shares the history of another one up to a record. */
export interface ForkRow {
  id: string;
  at?: number;
  created: string;
  updated: string;
}

export interface Finding {
  rule: string;
  severity: string;
  path: string;
  message: string;
  fix: string;
  provider_error?: string | null;
  evidence?: Evidence[];
}

export interface Evidence {
  kind: string;
  url?: string;
  source?: string;
}

export interface MapItem {
  id: string;
  kind: string;
  bytes: number;
  text: string;
}

export interface MapCall {
  id: string;
  run?: string;
  turn: number;
  attempt: number;
  discarded?: boolean;
  purpose?: string;
  model: string;
  at: string;
  returned: number[];
  spans: [number, number, string][];
}

export interface MapRun extends RunCounts {
  id: string;
}

export interface ThoughtMap {
  forgotten: number;
  items: MapItem[];
  calls: MapCall[];
  runs: MapRun[];
}

export interface PendingRequest {
  id: string;
  kind: string;
  run: string;
  title?: string;
  opened: string;
  expires?: string;
  missing_tools: string[];
  tool?: string;
  args?: unknown;
  redacted?: boolean;
  /** The description of the tool. */
  description?: string;
  /** Whether the tool can safely run twice. */
  idempotent?: boolean;
  /** The model's Thoughts and texts before the call. */
  reply?: { kind: "thought" | "text"; text: string; cut: boolean }[];
  /** `unknown` if an earlier attempt of the call has no recorded end. */
  outcome?: string;
  questions?: Question[];
  allowFreeText?: boolean;
}

export interface Question {
  question: string;
  header?: string;
  multiSelect?: boolean;
  placeholder?: string;
  options?: { label: string; value?: string; description?: string; preview?: string }[];
}
