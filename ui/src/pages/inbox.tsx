/** The inbox: calls of tools that want to be allowed, and questions that want an answer. */

import { useState } from "preact/hooks";
import { post, Problem } from "../api";
import { ago, exact, plain } from "../format";
import { to, useAnswer, useNow, useTitle } from "../hooks";
import { Empty, Loading, Trouble, When } from "../parts";
import type { Question, Waiting } from "../types";

export function InboxPage({ decided }: { decided: () => void }) {
  useTitle("Inbox");
  const { value, problem, again } = useAnswer<{ waiting: Waiting[] }>("/v1/throughline/inbox", 2000);
  const [said, setSaid] = useState("");
  const done = (words: string) => {
    setSaid(words);
    again();
    decided();
  };
  return (
    <>
      <header class="head">
        <h1>Inbox</h1>
      </header>
      <p class="said" role="status">
        {said}
      </p>
      {problem ? <Trouble problem={problem} again={again} /> : null}
      {!value && !problem ? <Loading /> : null}
      {value && !value.waiting.length ? <Empty title="Nothing waits for you">Calls of tools that need a person, and questions of agents, come here.</Empty> : null}
      {value?.waiting.map((one) => (one.kind === "question" ? <Asks key={one.id} one={one} done={done} /> : one.kind === "approval" ? <Approval key={one.id} one={one} done={done} /> : <Elsewhere key={one.id} one={one} />))}
    </>
  );
}

function About({ one, what }: { one: Waiting; what: string }) {
  const now = useNow(1000);
  return (
    <header>
      <span class="label">{what}</span>
      <a href={to("run", one.run)}>
        <bdi>{plain(one.title ?? one.run)}</bdi>
      </a>
      <span class="dim">
        <When at={one.opened} now={now} />
      </span>
      {one.expires ? (
        <span class="tag warn" title={exact(one.expires)}>
          {Date.parse(one.expires) > now ? `expires in ${ago(new Date(2 * now - Date.parse(one.expires)).toISOString(), now).replace(" ago", "")}` : "expired"}
        </span>
      ) : null}
    </header>
  );
}

const goesOn = (one: Waiting) =>
  one.missing_tools.length ? (
    <p class="hint">
      Its tools are not at this server ({one.missing_tools.map(plain).join(", ")}). Once you have decided, go on with it: <code>throughline resume {one.run}</code>
    </p>
  ) : null;

function Approval({ one, done }: { one: Waiting; done: (words: string) => void }) {
  const [mode, setMode] = useState<"" | "edit" | "reject">("");
  const [args, setArgs] = useState(() => JSON.stringify(one.args, null, 2));
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const decide = async (body: Record<string, unknown>, words: string) => {
    setBusy(true);
    try {
      await post(`/v1/throughline/approvals/${encodeURIComponent(one.id)}`, { ...body, decided_by: "console" });
      done(words);
    } catch (error) {
      setProblem(error as Problem);
      setBusy(false);
    }
  };
  const edited = () => {
    try {
      decide({ approved: true, args: JSON.parse(args) }, `${one.tool} runs with your arguments.`);
    } catch (error) {
      setProblem(new Problem(422, `These arguments are not JSON: ${(error as Error).message}`));
    }
  };
  return (
    <article class="card" aria-label={`Approval of ${plain(one.tool ?? "a tool")}`}>
      <About one={one} what="Approval" />
      <h2>
        May <code>{plain(one.tool ?? "a tool")}</code> run with exactly these arguments?
      </h2>
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
      {one.redacted ? <p class="hint">Some of it is hidden here, so it cannot be edited: approve or reject it as it is.</p> : null}
      {mode === "reject" ? (
        <label>
          Reason, which the model is told
          <input type="text" value={reason} placeholder="Not on a Friday" onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      ) : null}
      {goesOn(one)}
      {problem ? <Trouble problem={problem} /> : null}
      <div class="actions">
        {mode === "" ? (
          <>
            <button class="primary" disabled={busy} onClick={() => decide({ approved: true }, `${one.tool} may run.`)}>
              Approve
            </button>
            <button disabled={busy || one.redacted} onClick={() => setMode("edit")}>
              Edit
            </button>
            <button disabled={busy} onClick={() => setMode("reject")}>
              Reject
            </button>
          </>
        ) : (
          <>
            {mode === "edit" ? (
              <button class="primary" disabled={busy} onClick={edited}>
                Approve the edited call
              </button>
            ) : (
              <button class="danger" disabled={busy} onClick={() => decide({ approved: false, comment: reason }, `${one.tool} may not run.`)}>
                Reject the call
              </button>
            )}
            <button disabled={busy} onClick={() => setMode("")}>
              Back
            </button>
          </>
        )}
      </div>
    </article>
  );
}

interface Chosen {
  values: string[];
  freeText: string;
}

function Asks({ one, done }: { one: Waiting; done: (words: string) => void }) {
  const questions = one.questions ?? [];
  const [chosen, setChosen] = useState<Chosen[]>(() => questions.map(() => ({ values: [], freeText: "" })));
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const change = (place: number, next: Partial<Chosen>) => setChosen((all) => all.map((old, at) => (at === place ? { ...old, ...next } : old)));
  const send = async (body: unknown, words: string) => {
    setBusy(true);
    try {
      await post(`/v1/throughline/questions/${encodeURIComponent(one.id)}`, body);
      done(words);
    } catch (error) {
      setProblem(error as Problem);
      setBusy(false);
    }
  };
  const answer = (event: Event) => {
    event.preventDefault();
    const answers = Object.fromEntries(
      questions.map((question, place) => {
        const { values, freeText } = chosen[place]!;
        return [question.question, { values, ...(freeText.trim() ? { freeText: freeText.trim() } : {}) }];
      }),
    );
    send({ answers, answeredBy: "console" }, "The answer is with the agent.");
  };
  return (
    <article class="card" aria-label="Question">
      <About one={one} what="Question" />
      <form onSubmit={answer}>
        {questions.map((question, place) => (
          <Options id={`${one.id}-${place}`} question={question} free={one.allowFreeText !== false || !question.options?.length} chosen={chosen[place]!} change={(next) => change(place, next)} />
        ))}
        {goesOn(one)}
        {problem ? <Trouble problem={problem} /> : null}
        <div class="actions">
          <button class="primary" disabled={busy}>
            Answer
          </button>
          <button type="button" disabled={busy} onClick={() => send({ cancelled: true, answeredBy: "console" }, "The agent knows that nobody answers.")}>
            Nobody answers
          </button>
        </div>
      </form>
    </article>
  );
}

function Options({ id, question, free, chosen, change }: { id: string; question: Question; free: boolean; chosen: Chosen; change: (next: Partial<Chosen>) => void }) {
  const pick = (value: string, on: boolean) => {
    if (!question.multiSelect) return change({ values: on ? [value] : [] });
    change({ values: on ? [...chosen.values, value] : chosen.values.filter((known) => known !== value) });
  };
  return (
    <fieldset>
      <legend>
        {question.header ? (
          <span class="tag">
            <bdi>{plain(question.header)}</bdi>
          </span>
        ) : null}
        <bdi>{plain(question.question)}</bdi>
        {question.multiSelect ? <small>choose any</small> : null}
      </legend>
      {(question.options ?? []).map((option) => {
        const value = option.value ?? option.label;
        return (
          <label class="option">
            <input type={question.multiSelect ? "checkbox" : "radio"} name={id} checked={chosen.values.includes(value)} onChange={(event) => pick(value, event.currentTarget.checked)} />
            <span>
              <strong>
                <bdi>{plain(option.label)}</bdi>
              </strong>
              {option.description ? (
                <span>
                  <bdi>{plain(option.description)}</bdi>
                </span>
              ) : null}
              {option.preview ? <pre>{plain(option.preview)}</pre> : null}
            </span>
          </label>
        );
      })}
      {free ? (
        <label>
          {question.options?.length ? "Or in your own words" : "Your answer"}
          <input type="text" value={chosen.freeText} placeholder={plain(question.placeholder ?? "")} onInput={(event) => change({ freeText: event.currentTarget.value })} />
        </label>
      ) : null}
    </fieldset>
  );
}

function Elsewhere({ one }: { one: Waiting }) {
  return (
    <article class="card">
      <About one={one} what="Tool of the caller's" />
      <p>Whoever began this run runs the tool, and returns what it says.</p>
    </article>
  );
}
