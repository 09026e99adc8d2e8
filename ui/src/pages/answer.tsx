/** The answer of a call: text, Thoughts, tool calls and media, after the message that it answers. */

import type { ComponentChildren } from "preact";
import { bytes, line, plain, pretty } from "../format";
import { Copy, LongText, Seal, sealState } from "../parts";
import type { CallRecord } from "./call";

/** An Item of the reply. */
export interface ReplyItem {
  kind: "text" | "thought" | "tool_call" | "tool_result" | "hosted" | "media" | "compaction" | "other";
  text?: string;
  summary?: boolean;
  sealed_bytes?: number;
  name?: string;
  id?: string;
  args?: unknown;
  result?: boolean;
  /** The outcome of a tool call: `ok`, `error`, `unknown` or `denied`. */
  outcome?: string;
  mime?: string;
  bytes?: number;
  /** The content of an image. */
  base64?: string;
  uri?: string;
}

export function Answer({ record }: { record: CallRecord }) {
  const items = record.reply ?? [];
  const prompt = lastUserText(record.received?.body);
  const text = items.filter((item) => item.kind === "text").map((item) => item.text).join("\n");
  return (
    <section class="answer" aria-labelledby="answer">
      <h2 id="answer">Answer {text ? <Copy text={text} label="Copy text" /> : null}</h2>
      <ol>
        {prompt ? <Part label="User" kind="user"><LongText text={prompt} limit={600} /></Part> : null}
        {items.map((item) => <Item item={item} />)}
        {items.length ? null : <li class="part"><p class="same">{reason(record)}</p></li>}
      </ol>
    </section>
  );
}

/** Explains why a call has no answer to show. */
function reason({ error, status, reply, answer }: CallRecord): string {
  if (error || (status ?? 200) >= 400) return "The call failed, so there is no answer.";
  if (reply) return "The answer has no content, or its content was erased.";
  return answer?.stop === "cut" ? "The answer ended early and was not captured." : "The answer was not captured.";
}

export function Part({ label, kind, marks, children }: { label: string; kind: string; marks?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <li class={`part ${kind}`}>
      <header><span class="label">{label}</span> {marks}</header>
      {children}
    </li>
  );
}

/** Formats the arguments of a tool call, indented if they are long. */
export function toolArguments(args: unknown): string {
  const short = line(args);
  return short.length < 100 ? short : typeof args === "string" ? args : pretty(args);
}

const OUTCOMES: Record<string, [tone: string, label: string]> = { error: ["bad", "failed"], unknown: ["warn", "outcome unknown"], denied: ["bad", "rejected"] };

/** An Item; `role` is set for Items of a Thread, and `did` is the latest Fate of its Seal. */
export function Item({ item, role, did }: { item: ReplyItem; role?: string; did?: string }) {
  const seal = item.sealed_bytes ? <Seal state={sealState(did)} why={did ?? "sealed by the provider"} size={item.sealed_bytes} /> : null;
  switch (item.kind) {
    case "thought":
      return (
        <Part label={item.summary ? "Thought summary" : "Thought"} kind="thought" marks={seal ?? <Seal state="open" />}>
          {item.text ? <LongText text={item.text} /> : <p class="sealed">sealed by provider: {bytes(item.sealed_bytes ?? 0)}</p>}
        </Part>
      );
    case "tool_call":
      return (
        <Part label="Tool call" kind="tool" marks={<><code class="name">{plain(item.name ?? "")}</code> {seal} <Copy text={typeof item.args === "string" ? item.args : JSON.stringify(item.args, null, 2)} label="Copy arguments" /></>}>
          <LongText text={toolArguments(item.args)} mono limit={800} />
        </Part>
      );
    case "tool_result":
      return (
        <Part label="Tool result" kind="tool" marks={<>{item.name ? <code class="name">{plain(item.name)}</code> : null} {item.outcome && OUTCOMES[item.outcome] ? <span class={`tag ${OUTCOMES[item.outcome]![0]}`}>{OUTCOMES[item.outcome]![1]}</span> : null}</>}>
          <LongText text={item.text ?? ""} mono limit={800} />
        </Part>
      );
    case "hosted":
      return (
        <Part label={item.result ? "Provider's tool result" : "Provider's tool"} kind="tool" marks={<><code class="name">{plain(item.name ?? "")}</code> {seal}</>}>
          {item.text ? <LongText text={item.text} /> : null}
        </Part>
      );
    case "media":
      return (
        <Part label="Media" kind="media" marks={<span class="dim">{plain([item.mime, item.bytes ? bytes(item.bytes) : "", item.uri].filter(Boolean).join(" · "))}</span>}>
          {item.base64 && item.mime ? <img src={`data:${item.mime};base64,${item.base64}`} alt="Image in the answer" /> : null}
        </Part>
      );
    case "compaction":
      return <Part label="Compaction" kind="other" marks={seal} />;
    case "other":
      return <Part label="Other content" kind="other" marks={seal} />;
    default:
      return <Part label={ROLES[role ?? ""] ?? "Assistant"} kind={role && role !== "assistant" ? "user" : "text"} marks={seal}><LongText text={item.text ?? ""} limit={role === "system" ? 400 : 6000} /></Part>;
  }
}

const ROLES: Record<string, string> = { user: "User", system: "System prompt", developer: "Developer", tool: "Tool" };

/** Returns the text of the last user message of a request on any wire; empty if it has none. */
export function lastUserText(body: unknown): string {
  const request = body as Record<string, any> | null | undefined;
  const messages = request?.messages ?? request?.input ?? request?.contents;
  if (typeof messages === "string") return messages;
  if (!Array.isArray(messages)) return "";
  const texts = (message: any): string => {
    const content = message?.content ?? message?.parts;
    if (typeof content === "string") return content;
    if (!Array.isArray(content)) return "";
    return content.map((part: any) => (typeof part?.text === "string" ? part.text : "")).filter(Boolean).join("\n");
  };
  for (let index = messages.length - 1; index >= 0; index--) {
    const message = messages[index];
    if ((message?.role ?? "user") !== "user") continue;
    const text = texts(message);
    if (text) return text;
  }
  return "";
}
