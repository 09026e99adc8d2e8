/** The inbox: tool calls that need approval, and questions. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { post, ApiError } from "../api";
import { ago, exact, plain, resumeCommand } from "../format";
import { to, useFetch, useNow, useTitle } from "../hooks";
import { Copy, Empty, ErrorBox, FetchStatus, PageHead, RelativeTime } from "../parts";
import { may } from "../permissions";
import type { Question, PendingRequest } from "../types";

export function InboxPage({ decided }: { decided: () => void }) {
  useTitle("Inbox");
  const inbox = useFetch<{ waiting: PendingRequest[] }>("/v1/throughline/inbox", 2000);
  const { value } = inbox;
  const [notice, setNotice] = useState("");
  const done = (message: string) => {
    setNotice(message);
    inbox.reload();
    decided();
  };
  return (
    <>
      <PageHead title="Inbox" />
      <p class="notice" role="status">{notice}</p>
      <FetchStatus state={inbox} />
      {value && !value.waiting.length ? <Empty title="The inbox is empty">Tool calls that need approval and questions from agents appear here.</Empty> : null}
      {value?.waiting.map((one) => <RequestCard key={one.id} one={one} done={done} />)}
    </>
  );
}

/** A pending request with the controls to decide it. */
export function RequestCard({ one, done }: CardProps) {
  const Card = one.kind === "question" ? QuestionCard : one.kind === "approval" ? ApprovalCard : CallerToolCard;
  return <Card one={one} done={done} />;
}

interface CardProps {
  one: PendingRequest;
  /** Shows a message and reloads the inbox. */
  done: (message: string) => void;
}

/** The buttons of a card, for callers that may decide. */
function DecisionControls({ children }: { children: ComponentChildren }) {
  return may("approve") ? <div class="actions">{children}</div> : <p class="hint">The role of this key does not include approvals and answers.</p>;
}

/** Sends a decision. The buttons stay disabled after a success, because the card disappears. */
function useDecision(path: string, done: (message: string) => void) {
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const decide = async (body: object, message: string) => {
    setBusy(true);
    try {
      await post(path, body);
      done(message);
    } catch (error) {
      setProblem(error as ApiError);
      setBusy(false);
    }
  };
  return { problem, setProblem, busy, decide };
}

function CardHeader({ one, label }: { one: PendingRequest; label: string }) {
  const now = useNow(1000);
  return (
    <header>
      <span class="label">{label}</span>
      <a href={to("run", one.run)}><bdi>{plain(one.title ?? one.run)}</bdi></a>
      <span class="dim"><RelativeTime at={one.opened} now={now} /></span>
      {one.expires ? (
        <span class="tag warn" title={exact(one.expires)}>
          {Date.parse(one.expires) > now ? `expires in ${ago(new Date(2 * now - Date.parse(one.expires)).toISOString(), now).replace(" ago", "").replace("just now", "a few seconds")}` : "expired"}
        </span>
      ) : null}
    </header>
  );
}

const missingToolsHint = (one: PendingRequest) =>
  one.missing_tools.length ? (
    <p class="hint">
      This server lacks some of the run's tools ({one.missing_tools.map(plain).join(", ")}). After your decision, continue the run with <code>{plain(resumeCommand(one.run, one.missing_tools))}</code>, or with <code>--agent FILE</code>. <Copy text={resumeCommand(one.run, one.missing_tools)} label="Copy command" />
    </p>
  ) : null;

/** What the model thought and wrote before it called the tool. */
function ReplyBeforeCall({ reply }: { reply: NonNullable<PendingRequest["reply"]> }) {
  if (!reply.length) return null;
  return (
    <section class="before-call" tabIndex={0} aria-label="The model before the call">
      {reply.map(({ kind, text, cut }) => (
        <p>
          <span class="label">{kind === "thought" ? "Thought" : "Text"}</span> <bdi>{plain(cut ? `${text}…` : text)}</bdi>
        </p>
      ))}
    </section>
  );
}

/** The description of the tool, and whether running it again could repeat its effects. */
function ToolRisk({ one }: { one: PendingRequest }) {
  return (
    <>
      {one.description ? <p class="hint"><bdi>{plain(one.description)}</bdi></p> : null}
      {one.idempotent === undefined ? null : (
        <p class="hint">
          <span class={one.idempotent ? "tag good" : "tag warn"}>{one.idempotent ? "safe to repeat" : "not safe to repeat"}</span>{" "}
          {one.idempotent ? "The tool is declared as idempotent: it has the same effect if it runs twice." : "The tool is not declared as idempotent: each run of it may have an effect that cannot be undone."}
        </p>
      )}
      {one.outcome === "unknown" ? <p class="callout">An earlier attempt of this call started, and its end was not recorded. If you approve the call, the tool runs again.</p> : null}
    </>
  );
}

function ApprovalCard({ one, done }: CardProps) {
  const [mode, setMode] = useState<"" | "edit" | "reject">("");
  const [args, setArgs] = useState(() => JSON.stringify(one.args, null, 2));
  const [reason, setReason] = useState("");
  const { problem, setProblem, busy, decide } = useDecision(`/v1/throughline/approvals/${encodeURIComponent(one.id)}`, done);
  const answer = (body: object, message: string) => decide({ ...body, decided_by: "console" }, message);
  const approveEdited = () => {
    try {
      answer({ approved: true, args: JSON.parse(args) }, `${one.tool} was approved with your arguments.`);
    } catch (error) {
      setProblem(new ApiError(422, `These arguments are not valid JSON: ${(error as Error).message}`));
    }
  };
  return (
    <article class="card" aria-label={`Approval request for ${plain(one.tool ?? "a tool")}`}>
      <CardHeader one={one} label="Approval" />
      <ReplyBeforeCall reply={one.reply ?? []} />
      <h2>
        Run <code>{plain(one.tool ?? "a tool")}</code> with exactly these arguments?
      </h2>
      <ToolRisk one={one} />
      {mode === "edit" ? (
        <label>
          Arguments
          <textarea class="mono" rows={Math.min(16, args.split("\n").length + 1)} value={args} spellcheck={false} onInput={(event) => setArgs(event.currentTarget.value)} />
        </label>
      ) : (
        <pre tabIndex={0} role="region" aria-label="Arguments">
          {plain(JSON.stringify(one.args, null, 2) ?? "")}
        </pre>
      )}
      {one.redacted ? <p class="hint">Some arguments are redacted, so the arguments cannot be edited here. Approve or reject the call with the original arguments.</p> : null}
      {mode === "reject" ? (
        <label>
          Reason (sent to the model)
          <input type="text" value={reason} placeholder="For example: not on a Friday" onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      ) : null}
      {missingToolsHint(one)}
      {problem ? <ErrorBox problem={problem} /> : null}
      <DecisionControls>
        {mode === "" ? (
          <>
            <button class="primary" disabled={busy} onClick={() => answer({ approved: true }, `${one.tool} was approved.`)}>Approve</button>
            <button disabled={busy || one.redacted} onClick={() => setMode("edit")}>Edit</button>
            <button disabled={busy} onClick={() => setMode("reject")}>Reject</button>
          </>
        ) : (
          <>
            {mode === "edit" ? (
              <button class="primary" disabled={busy} onClick={approveEdited}>Approve the edited call</button>
            ) : (
              <button class="danger" disabled={busy} onClick={() => answer({ approved: false, comment: reason }, `${one.tool} was rejected.`)}>Reject the call</button>
            )}
            <button disabled={busy} onClick={() => setMode("")}>Back</button>
          </>
        )}
      </DecisionControls>
    </article>
  );
}

interface Selection {
  values: string[];
  freeText: string;
}

function QuestionCard({ one, done }: CardProps) {
  const questions = one.questions ?? [];
  const [chosen, setChosen] = useState<Selection[]>(() => questions.map(() => ({ values: [], freeText: "" })));
  const { problem, busy, decide } = useDecision(`/v1/throughline/questions/${encodeURIComponent(one.id)}`, done);
  const change = (index: number, next: Partial<Selection>) => setChosen((all) => all.map((old, at) => (at === index ? { ...old, ...next } : old)));
  const answer = (event: Event) => {
    event.preventDefault();
    const answers = Object.fromEntries(
      questions.map((question, index) => {
        const { values, freeText } = chosen[index]!;
        return [question.question, { values, ...(freeText.trim() ? { freeText: freeText.trim() } : {}) }];
      }),
    );
    decide({ answers, answeredBy: "console" }, "The answer was sent to the agent.");
  };
  return (
    <article class="card" aria-label="Question">
      <CardHeader one={one} label="Question" />
      <form onSubmit={answer}>
        {questions.map((question, index) => (
          <Options id={`${one.id}-${index}`} question={question} free={one.allowFreeText !== false || !question.options?.length} chosen={chosen[index]!} change={(next) => change(index, next)} />
        ))}
        {missingToolsHint(one)}
        {problem ? <ErrorBox problem={problem} /> : null}
        <DecisionControls>
          <button class="primary" disabled={busy}>Answer</button>
          <button type="button" disabled={busy} onClick={() => decide({ cancelled: true, answeredBy: "console" }, "The agent was notified that you declined to answer.")}>
            Decline to answer
          </button>
        </DecisionControls>
      </form>
    </article>
  );
}

function Options({ id, question, free, chosen, change }: { id: string; question: Question; free: boolean; chosen: Selection; change: (next: Partial<Selection>) => void }) {
  const pick = (value: string, on: boolean) => {
    if (!question.multiSelect) return change({ values: on ? [value] : [] });
    change({ values: on ? [...chosen.values, value] : chosen.values.filter((known) => known !== value) });
  };
  return (
    <fieldset>
      <legend>
        {question.header ? <span class="tag"><bdi>{plain(question.header)}</bdi></span> : null}
        <bdi>{plain(question.question)}</bdi>
        {question.multiSelect ? <small>select any number</small> : null}
      </legend>
      {(question.options ?? []).map((option) => {
        const value = option.value ?? option.label;
        return (
          <label class="option">
            <input type={question.multiSelect ? "checkbox" : "radio"} name={id} checked={chosen.values.includes(value)} onChange={(event) => pick(value, event.currentTarget.checked)} />
            <span>
              <strong><bdi>{plain(option.label)}</bdi></strong>
              {option.description ? <span><bdi>{plain(option.description)}</bdi></span> : null}
              {option.preview ? <pre>{plain(option.preview)}</pre> : null}
            </span>
          </label>
        );
      })}
      {free ? (
        <label>
          {question.options?.length ? "Or your own answer" : "Your answer"}
          <input type="text" value={chosen.freeText} placeholder={plain(question.placeholder ?? "")} onInput={(event) => change({ freeText: event.currentTarget.value })} />
        </label>
      ) : null}
    </fieldset>
  );
}

function CallerToolCard({ one }: CardProps) {
  return (
    <article class="card">
      <CardHeader one={one} label="Client tool" />
      <p>The client that started this run executes the tool and returns the result.</p>
    </article>
  );
}
