/** Keys: list, create, change, reset and revoke. The server shows a new key only once. */

import { useState } from "preact/hooks";
import { ApiError, change, post } from "../api";
import { compact, count, dollars, plain } from "../format";
import { useFetch } from "../hooks";
import { Confirm, Copy, Empty, ErrorBox, FetchStatus, Id, RelativeTime, Table, type Column } from "../parts";
import { may } from "../permissions";

interface Limits {
  role?: string;
  models?: string[];
  budget_micro_usd?: number;
  budget_tokens?: number;
  budget_period?: string;
  soft_limit_percent?: number;
  requests_per_minute?: number;
  tokens_per_minute?: number;
}

interface Key {
  id: string;
  label: string;
  limits: Limits;
  created: string;
  revoked?: string;
}

const PATH = "/v1/throughline/keys";

/** What the page shows above the list. */
type Mode = { kind: "list" } | { kind: "create" } | { kind: "edit"; key: Key } | { kind: "created"; label: string; secret: string };

export function KeyList() {
  const state = useFetch<{ keys: Key[] }>(PATH, 5000);
  const [mode, setMode] = useState<Mode>({ kind: "list" });
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [notice, setNotice] = useState("");
  const keys = state.value?.keys ?? [];
  const canManage = may("manage_keys");
  const attempt = async (act: () => Promise<string>) => {
    setProblem(null);
    setNotice("");
    try {
      setNotice(await act());
    } catch (error) {
      setProblem(error as ApiError);
    }
    state.reload();
  };
  const revoke = (key: Key) =>
    attempt(async () => {
      await change("DELETE", `${PATH}/${encodeURIComponent(key.id)}`);
      return `The key ${key.label} was revoked.`;
    });
  const create = (label: string, limits: Patch) =>
    attempt(async () => {
      const set = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null));
      const { key } = await post<{ key: string }>(PATH, { label, ...set });
      setMode({ kind: "created", label, secret: key });
      return "";
    });
  const update = (key: Key, limits: Patch) =>
    attempt(async () => {
      await change("PATCH", `${PATH}/${encodeURIComponent(key.id)}`, limits);
      setMode({ kind: "list" });
      return `The limits of ${key.label} were changed. A running gateway applies them within about a second.`;
    });
  const columns: Column<Key>[] = [
    ["Key", (key) => <><strong><bdi>{plain(key.label)}</bdi></strong> <Id id={key.id} isInList /></>, "title"],
    ["Status", (key) => (key.revoked ? <span class="tag bad">revoked</span> : <span class="tag good">active</span>)],
    ["Role", ({ limits }) => <span class="tag">{plain(limits.role ?? "no role")}</span>],
    ["Models", ({ limits }) => (limits.models?.length ? <bdi class="block">{limits.models.map(plain).join(" ")}</bdi> : <span class="dim">all</span>)],
    ["Budget", ({ limits }) => describeBudget(limits)],
    ["Rates", ({ limits }) => describeRates(limits)],
    ["Created", (key) => <RelativeTime at={key.created} />, "number dim"],
    ...(canManage ? [["Actions", (key: Key) => (key.revoked ? null : <KeyActions key={key.id} edit={() => setMode({ kind: "edit", key })} revoke={() => revoke(key)} />)] as Column<Key>] : []),
  ];
  return (
    <>
      <p class="notice" role="status">{plain(notice)}</p>
      {problem ? <ErrorBox problem={problem} /> : null}
      {mode.kind === "created" ? <NewSecret label={mode.label} secret={mode.secret} close={() => setMode({ kind: "list" })} /> : null}
      {mode.kind === "create" ? <KeyForm title="Create a key" save={create} close={() => setMode({ kind: "list" })} /> : null}
      {mode.kind === "edit" ? <KeyForm key={mode.key.id} title={`Change ${mode.key.label}`} known={mode.key} save={(_, limits) => update(mode.key, limits)} close={() => setMode({ kind: "list" })} /> : null}
      {canManage && mode.kind === "list" ? <div class="actions"><button class="primary" onClick={() => setMode({ kind: "create" })}>Create key</button></div> : null}
      {canManage || !keys.length ? null : <p class="hint">Only a key with the role operator can create, change and revoke keys.</p>}
      <FetchStatus state={state} />
      {state.value && !keys.length && mode.kind === "list" ? <Empty title="No keys">Without keys, this gateway serves only the local machine. Create the first key with <code>throughline keys create --role operator</code>. Once a key exists, every request needs a key.</Empty> : null}
      {keys.length ? <Table rows={keys} columns={columns} id={(key) => key.id} label="Keys" /> : null}
    </>
  );
}

function describeBudget({ budget_micro_usd: cost, budget_tokens: tokens, budget_period: period }: Limits) {
  const parts = [cost !== undefined ? dollars(cost / 1e6) : "", tokens !== undefined ? `${compact(tokens)} tokens` : ""].filter(Boolean);
  if (!parts.length) return <span class="dim">none</span>;
  return `${parts.join(" and ")} ${period && period !== "total" ? `per ${plain(period)}` : "in total"}`;
}

function describeRates({ requests_per_minute: requests, tokens_per_minute: tokens }: Limits) {
  const parts = [requests !== undefined ? `${count(requests)} requests` : "", tokens !== undefined ? `${compact(tokens)} tokens` : ""].filter(Boolean);
  return parts.length ? `${parts.join(", ")} per minute` : <span class="dim">none</span>;
}

function KeyActions({ edit, revoke }: { edit: () => void; revoke: () => Promise<void> }) {
  return (
    <span class="actions">
      <button onClick={edit}>Change</button>
      <Confirm label="Revoke" question="Requests with this key will get status 401." yes="Revoke the key" act={revoke} />
    </span>
  );
}

/** Shows a new key. The server cannot return it again. */
function NewSecret({ label, secret, close }: { label: string; secret: string; close: () => void }) {
  return (
    <section class="card" aria-labelledby="secret">
      <h2 id="secret">The key {plain(label)} was created</h2>
      <p>Copy the key now. It is shown only once, and the gateway stores only a digest of it.</p>
      <pre class="secret" tabIndex={0}>{secret}</pre>
      <div class="actions">
        <Copy text={secret} label="Copy key" />
        <button onClick={close}>Done</button>
      </div>
    </section>
  );
}

/** Changed limits. A limit that is null is removed. */
type Patch = { [name in keyof Limits]: Limits[name] | null };

interface FormProps {
  title: string;
  known?: Key;
  /** Whether no key exists yet. */
  save: (label: string, limits: Patch) => Promise<void>;
  close: () => void;
}

const text = (value: number | undefined, scale = 1) => (value === undefined ? "" : String(value / scale));

function KeyForm({ title, known, save, close }: FormProps) {
  const limits = known?.limits ?? {};
  const [label, setLabel] = useState("");
  const [role, setRole] = useState(limits.role ?? (known ? "" : "app"));
  const [models, setModels] = useState(limits.models?.join(" ") ?? "");
  const [cost, setCost] = useState(text(limits.budget_micro_usd, 1e6));
  const [tokens, setTokens] = useState(text(limits.budget_tokens));
  const [period, setPeriod] = useState(limits.budget_period ?? "total");
  const [soft, setSoft] = useState(text(limits.soft_limit_percent));
  const [requests, setRequests] = useState(text(limits.requests_per_minute));
  const [perMinute, setPerMinute] = useState(text(limits.tokens_per_minute));
  const [isBusy, setBusy] = useState(false);
  const number = (value: string, scale = 1) => (value.trim() ? Math.round(Number(value) * scale) : null);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    const names = models.split(/[\s,]+/).filter(Boolean);
    const hasBudget = Boolean(cost.trim() || tokens.trim());
    await save(label.trim(), {
      role: role || null,
      models: names.length ? names : null,
      budget_micro_usd: number(cost, 1e6),
      budget_tokens: number(tokens),
      budget_period: hasBudget && period !== "total" ? period : null,
      soft_limit_percent: hasBudget ? number(soft) : null,
      requests_per_minute: number(requests),
      tokens_per_minute: number(perMinute),
    });
    setBusy(false);
  };
  const field = (name: string, value: string, set: (value: string) => void, hint: string, step = "1") => (
    <label>
      {name}
      <input type="number" min={step === "1" ? "1" : "0"} step={step} value={value} placeholder={hint} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
  return (
    <form class="card key-form" onSubmit={submit} aria-label={plain(title)}>
      <h2><bdi>{plain(title)}</bdi></h2>
      <div class="fields">
        {known ? null : (
          <label>
            Label
            <input type="text" name="label" value={label} required placeholder="laptop" onInput={(event) => setLabel(event.currentTarget.value)} />
          </label>
        )}
        <label>
          Role
          <select value={role} onChange={(event) => setRole(event.currentTarget.value)}>
            <option value="operator">operator: everything</option>
            <option value="app">app: call models and run agents</option>
            <option value="viewer">viewer: read</option>
            <option value="">no role: everything except keys</option>
          </select>
        </label>
        <label>
          Models
          <input type="text" value={models} placeholder="all, or patterns such as claude-*" onInput={(event) => setModels(event.currentTarget.value)} />
        </label>
      </div>
      <div class="fields">
        {field("Budget in US dollars", cost, setCost, "no limit", "any")}
        {field("Budget in tokens", tokens, setTokens, "no limit")}
        <label>
          Period of the budgets
          <select value={period} onChange={(event) => setPeriod(event.currentTarget.value)}>
            <option value="total">in total</option>
            <option value="day">per day</option>
            <option value="week">per week</option>
            <option value="month">per month</option>
          </select>
        </label>
        {field("Alert at percent", soft, setSoft, "no alert")}
        {field("Requests per minute", requests, setRequests, "no limit")}
        {field("Tokens per minute", perMinute, setPerMinute, "no limit")}
      </div>
      <div class="actions">
        <button class="primary" disabled={isBusy}>{known ? "Save changes" : "Create key"}</button>
        <button type="button" onClick={close}>Back</button>
      </div>
    </form>
  );
}
