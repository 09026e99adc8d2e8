/**
 * A Thread as a chat. A gateway conversation is the request of a call, with restored Thoughts, and
 * its reply. A Thread of agents is the list of its Items.
 */

import { useMemo, useState } from "preact/hooks";
import { get } from "../api";
import { readConversation, stringsOf, type ChatPart } from "../chat";
import { bytes, count, exact, plain, plural } from "../format";
import { setParams, to, useFetch } from "../hooks";
import { Empty, FetchStatus, LongText, Seal } from "../parts";
import type { CallRow, MapCall, ThoughtMap } from "../types";
import { Item, Part, toolArguments, type ReplyItem } from "./answer";
import type { CallRecord } from "./call";

/** Number of messages that are shown at first. */
const SHOWN = 40;

/** Number of records per request for the Items of a Thread. */
const ITEMS = 100;

const LABELS: Record<string, string> = { user: "User", assistant: "Assistant", system: "System prompt" };

const isAnswered = (call: CallRow) => !call.error && (call.status ?? 200) < 400;

/** Shows the conversation up to one of the calls, by default the newest answered call. */
export function Conversation({ calls, chosen }: { calls: CallRow[]; chosen: string }) {
  const call = calls.find((one) => one.id === chosen) ?? calls.find(isAnswered) ?? calls[0];
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

/** An Item of a Thread. */
interface ThreadItem extends ReplyItem {
  id: string;
  seq: number;
  at: string;
  role: string;
  model?: string;
}

interface ItemPage {
  items: ThreadItem[];
  erased: number;
  /** The value of `before` for older Items. */
  before?: number;
}

/** The Items of a Thread of agents as a chat, with a mark at the start of each model call's answer. */
export function AgentConversation({ thread }: { thread: string }) {
  const path = `/v1/throughline/threads/${encodeURIComponent(thread)}`;
  const newest = useFetch<ItemPage>(`${path}/items?limit=${ITEMS}`, 3000);
  const map = useFetch<ThoughtMap>(`${path}/map`, 3000);
  const [older, setOlder] = useState<ItemPage[]>([]);
  const [problem, setProblem] = useState("");
  const marks = useMemo(() => marksOf(map.value), [map.value]);
  if (!newest.value) return <FetchStatus state={newest} />;
  // Pages may overlap after new Items.
  const pages = [...older, newest.value];
  const items = [...new Map(pages.flatMap((page) => page.items).map((item) => [item.seq, item])).values()].sort((a, b) => a.seq - b.seq);
  const before = pages[0]!.before;
  const erased = pages.reduce((sum, page) => sum + page.erased, 0);
  const loadOlder = async () => {
    try {
      setOlder([await get<ItemPage>(`${path}/items?limit=${ITEMS}&before=${before}`), ...older]);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  if (!items.length && !erased) return <Empty title="No messages yet" />;
  let last = "";
  return (
    <section class="answer chat" aria-labelledby="conversation">
      <h2 id="conversation">Conversation</h2>
      {erased ? <p class="same">{plural(erased, "Item")} erased.</p> : null}
      <ol>
        {before ? <li class="part"><button onClick={loadOlder}>Show earlier messages</button>{problem ? <p class="bad">{plain(problem)}</p> : null}</li> : null}
        {items.map((item) => {
          const call = marks.calls.get(item.id);
          const isNew = item.role === "assistant" && call !== undefined && call.id !== last;
          if (call) last = call.id;
          return (
            <>
              {isNew ? <Turn call={call} /> : null}
              <Item key={item.seq} item={item} role={item.role} did={marks.fates.get(item.id)} />
            </>
          );
        })}
      </ol>
    </section>
  );
}

/** The start of the answer of a model call, with a link to its run. */
function Turn({ call }: { call: MapCall }) {
  const label = `Turn ${call.turn}${call.attempt > 1 ? `, attempt ${call.attempt}` : ""} of ${call.model || "the model"}`;
  return <li class="part mark">{call.run ? <a href={to("run", call.run)}>{plain(label)}</a> : plain(label)} <span class="dim">{exact(call.at)}</span></li>;
}

/** Returns the call that returned each Thought or sealed Item, and the latest Fate of each. */
function marksOf(map: ThoughtMap | null): { calls: Map<string, MapCall>; fates: Map<string, string> } {
  const [calls, fates] = [new Map<string, MapCall>(), new Map<string, string>()];
  for (const call of map?.calls ?? []) {
    for (const index of call.returned) {
      const item = map!.items[index];
      if (item) calls.set(item.id, call);
    }
    for (const [from, number, did] of call.spans) {
      for (let index = from; index < from + number; index++) {
        const item = map!.items[index];
        if (item) fates.set(item.id, did);
      }
    }
  }
  return { calls, fates };
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
