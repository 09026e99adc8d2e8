/** A gateway conversation as a chat: the request of a call, with restored Thoughts, and its reply. */

import { useMemo, useState } from "preact/hooks";
import { readConversation, stringsOf, type ChatPart } from "../chat";
import { bytes, count, exact, plain } from "../format";
import { setParams, to, useFetch } from "../hooks";
import { FetchStatus, LongText, Seal } from "../parts";
import type { CallRow } from "../types";
import { Item, Part, toolArguments } from "./answer";
import type { CallRecord } from "./call";

/** Number of messages that are shown at first. */
const SHOWN = 40;

const LABELS: Record<string, string> = { user: "User", assistant: "Assistant", system: "System prompt" };

/** Shows the conversation up to one of the calls, by default the newest answered call. */
export function Conversation({ calls, chosen }: { calls: CallRow[]; chosen: string }) {
  const call = calls.find((one) => one.id === chosen) ?? calls.find((one) => !one.error && (one.status ?? 200) < 400) ?? calls[0];
  const state = useFetch<CallRecord>(call ? `/v1/throughline/calls/${encodeURIComponent(call.id)}/view` : null);
  if (!call) return null;
  return (
    <section class="answer chat" aria-labelledby="conversation">
      <h2 id="conversation">
        Conversation
        <label class="upto">
          <span>up to call</span>
          <select value={call.id} onChange={(event) => setParams({ call: event.currentTarget.value })}>
            {calls.map((one, index) => (
              <option value={one.id}>{plain(`${calls.length - index} · ${one.target?.model ?? one.model ?? ""} · ${exact(one.at)}`)}</option>
            ))}
          </select>
        </label>
      </h2>
      {state.value ? <Messages record={state.value} call={call} /> : <FetchStatus state={state} />}
    </section>
  );
}

/** The messages of the request of a call, and the reply. */
export function Messages({ record, call }: { record: CallRecord; call: Pick<CallRow, "id" | "model" | "target"> }) {
  const [isOpen, setOpen] = useState(false);
  // The sent request contains the restored Thoughts. A call that was not sent has only the other.
  const body = record.sent?.body ?? record.received?.body;
  const messages = useMemo(() => readConversation(body), [record]);
  const own = useMemo(() => stringsOf(record.received?.body), [record]);
  const visible = isOpen ? messages : messages.slice(-SHOWN);
  const isRestored = (part: ChatPart) => Boolean(part.seal ? !own.has(part.seal) : part.kind === "thought" && part.text && !own.has(part.text));
  if (record.bodies) return <p class="same">{plain(record.bodies)}</p>;
  return (
    <ol>
      {visible.length < messages.length ? (
        <li class="part"><button onClick={() => setOpen(true)}>Show {count(messages.length - visible.length)} earlier messages</button></li>
      ) : null}
      {visible.map((message) => message.parts.map((part) => <Message role={message.role} part={part} isRestored={isRestored(part)} />))}
      <li class="part mark"><a href={to("call", call.id)}>Answer of {plain(call.target?.model ?? call.model ?? "the model")}</a></li>
      {(record.reply ?? []).map((item) => <Item item={item} />)}
      {record.error ? <li class="part"><p class="bad">{plain(record.error)}</p></li> : null}
    </ol>
  );
}

function Message({ role, part, isRestored }: { role: string; part: ChatPart; isRestored: boolean }) {
  const size = part.seal?.length || undefined;
  const seal = size ? <Seal state={isRestored ? "restored" : "intact"} why={isRestored ? "The client had dropped this Seal" : "sent back unchanged"} size={size} /> : null;
  switch (part.kind) {
    case "thought":
      return (
        <Part label="Thought" kind="thought" marks={seal ?? <Seal state={isRestored ? "restored" : "open"} />}>
          {part.text ? <LongText text={part.text} /> : <p class="sealed">sealed by provider: {bytes(size ?? 0)}</p>}
        </Part>
      );
    case "tool_call":
      return <Part label="Tool call" kind="tool" marks={<><code class="name">{plain(part.name ?? "")}</code> {seal}</>}><LongText text={toolArguments(part.args)} mono limit={800} /></Part>;
    case "tool_result":
      return <Part label="Tool result" kind="tool"><LongText text={part.text} mono limit={800} /></Part>;
    case "media":
      return <Part label="Media" kind="media" marks={<span class="dim">{plain(part.text)}</span>} />;
    case "text":
      return <Part label={LABELS[role] ?? plain(role)} kind={role === "assistant" ? "text" : "user"} marks={seal}><LongText text={part.text} limit={role === "system" ? 400 : 3000} /></Part>;
  }
}
