/** The parts of the server's JSON that the console uses. */

export interface Thoughts {
  had: number;
  sealed_bytes: number;
  kept: number;
  restored: number;
  reshaped: number;
  elided: number;
}

export interface Tokens {
  inputTokens?: number;
  cachedInputTokens?: number;
  outputTokens?: number;
  reasoningTokens?: number;
  totalTokens?: number;
}

/** The counts of a run, which the server computes for all pages, the trace and the map. */
export interface RunCounts {
  turns: number;
  attempts: number;
  discarded: number;
  tools: number;
  thoughts: Thoughts;
}

export interface RunRow extends RunCounts {
  id: string;
  thread: string;
  status: string;
  title?: string;
  models: string[];
  tokens: Tokens | null;
  cost_usd: number | null;
  events: number;
  created: string;
  updated: string;
  gone?: string;
}

export interface Limit {
  name: string;
  used: number;
  allowed: number;
}

/** The status of a run. An erased run has only its ids. */
export interface RunHead extends Partial<RunCounts> {
  id: string;
  thread: string;
  status: string;
  reason?: string;
  agent?: string;
  model?: string;
  tokens?: Tokens;
  cost_usd?: number;
  events: number;
  created: string;
  updated: string;
  limits?: Limit[];
  missing_tools?: string[];
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
  usage?: { input: number; output: number; thought: number; cached: number };
  cost?: any;
  target?: { provider?: string; endpoint?: string; wire?: string; model?: string };
  answer?: { model?: string; stop?: string };
  microseconds?: number;
}

export interface ThreadRow {
  id: string;
  kind: "agent" | "gateway" | "kept";
  title?: string;
  records: number;
  bytes: number;
  created: string;
  updated: string;
  forked_from?: string;
  gone?: string;
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
  model: string;
  provider: string;
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
  provider: string;
  at: string;
  gave: number[];
  spans: [number, number, string][];
}

export interface ThoughtMap {
  thread: string;
  kind: string;
  forgotten: number;
  items: MapItem[];
  calls: MapCall[];
  runs: ({ id: string } & RunCounts)[];
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
  questions?: Question[];
  allowFreeText?: boolean;
}

export interface Question {
  question: string;
  header?: string;
  multiSelect?: boolean;
  placeholder?: string;
  required?: boolean;
  options?: { label: string; value?: string; description?: string; preview?: string }[];
}
