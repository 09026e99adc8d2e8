/** The playground: sends messages to any model through the gateway, and shows what is restored. */

import { useState } from "preact/hooks";
import { ApiError, postJson } from "../api";
import { plain } from "../format";
import { useFetch, useParam, useTitle } from "../hooks";
import { Empty, ErrorBox, FetchStatus, PageHead } from "../parts";
import type { CallRecord } from "./call";
import { Messages } from "./conversation";

interface Block {
  type: string;
  id?: string;
  name?: string;
  [member: string]: unknown;
}

interface Message {
  role: "user" | "assistant";
  content: string | Block[];
}

/** The tool that the playground offers. The user writes its results. */
const TOOL = {
  name: "get_weather",
  description: "Returns the weather of a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

const isThought = (block: Block) => /thinking/.test(block.type);

export function PlaygroundPage() {
  useTitle("Playground");
  const [model, setModel] = useParam("model");
  // Whether the user has cleared the model field, so that it does not show the first model.
  const [isCleared, setCleared] = useState(false);
  const models = useFetch<{ data: { id: string }[] }>("/v1/models");
  const [messages, setMessages] = useState<Message[]>([]);
  const [call, setCall] = useState("");
  const [text, setText] = useState("");
  const [drops, setDrops] = useState(true);
  const [hasTool, setTool] = useState(true);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const view = useFetch<CallRecord>(call ? `/v1/throughline/calls/${encodeURIComponent(call)}/view` : null);
  const names = models.value?.data.map((one) => one.id) ?? [];
  const chosen = model || (isCleared ? "" : names[0] ?? "");
  const last = messages[messages.length - 1];
  const pending = last?.role === "assistant" && typeof last.content !== "string" ? last.content.filter((block) => block.type === "tool_use") : [];

  const send = async (event: Event) => {
    event.preventDefault();
    const content = pending.length ? pending.map((block) => ({ type: "tool_result", tool_use_id: block.id, content: text })) : text;
    const next: Message[] = [...messages, { role: "user", content }];
    setBusy(true);
    setProblem(null);
    try {
      const body = { model: chosen, max_tokens: 4096, thinking: { type: "enabled", budget_tokens: 2048 }, ...(hasTool ? { tools: [TOOL] } : {}), messages: next };
      const response = await postJson("/v1/messages", body);
      const answer: { content: Block[] } = await response.json();
      // A client that drops Thoughts sends only the visible blocks back.
      const kept = drops ? answer.content.filter((block) => !isThought(block)) : answer.content;
      setMessages([...next, { role: "assistant", content: kept }]);
      setCall(response.headers.get("x-throughline-call") ?? "");
      setText("");
    } catch (error) {
      setProblem(error instanceof ApiError ? error : new ApiError(0, (error as Error).message));
    }
    setBusy(false);
  };
  const chooseModel = (name: string) => {
    setCleared(!name);
    setModel(name);
  };
  const restart = () => {
    setMessages([]);
    setCall("");
    setProblem(null);
  };
  return (
    <>
      <PageHead title="Playground" lead="Sends messages through this gateway, as a client of Anthropic's Messages API. Switch the model in the middle of a conversation to see what is sent back. The calls are recorded and charged like those of any client." />
      {call ? (
        <section class="answer chat" aria-label="Conversation">
          {view.value ? <Messages record={view.value} call={{ id: call, model: chosen }} /> : <FetchStatus state={view} />}
        </section>
      ) : (
        <Empty title="No messages yet">Choose a model and send a message.</Empty>
      )}
      {problem ? <ErrorBox problem={problem} /> : null}
      <form class="composer" onSubmit={send}>
        <div class="fields">
          <label>
            Model
            <input list="models" value={chosen} onInput={(event) => chooseModel(event.currentTarget.value)} required />
            <datalist id="models">{names.map((name) => <option value={name} />)}</datalist>
          </label>
          <label class="check"><input type="checkbox" checked={drops} onChange={(event) => setDrops(event.currentTarget.checked)} /> Drop Thoughts before sending, like many clients</label>
          <label class="check"><input type="checkbox" checked={hasTool} onChange={(event) => setTool(event.currentTarget.checked)} /> Offer the tool get_weather</label>
        </div>
        <label>
          {pending.length ? `Result of ${plain(pending.map((block) => block.name).join(", "))}` : "Message"}
          <textarea rows={3} value={text} placeholder={pending.length ? "24 °C, sunny" : "Is it warmer in Rome or in Oslo?"} onInput={(event) => setText(event.currentTarget.value)} required />
        </label>
        <div class="actions">
          <button class="primary" disabled={busy || !chosen}>{busy ? "Sending…" : pending.length ? "Send result" : "Send"}</button>
          {messages.length ? <button type="button" onClick={restart}>New conversation</button> : null}
        </div>
      </form>
    </>
  );
}
