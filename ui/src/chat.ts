/** Reads the conversation in a request of any provider's API. */

/** A part of a message. */
export interface ChatPart {
  kind: "text" | "thought" | "tool_call" | "tool_result" | "media";
  text: string;
  /** The tool of a call. */
  name?: string;
  args?: unknown;
  /** The Seal of the part; empty if it has none. */
  seal?: string;
}

export interface ChatMessage {
  role: string;
  parts: ChatPart[];
}

type Json = any;

const list = (value: Json): Json[] => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);
const show = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value) ?? "");

/** Returns the readable text of a content: a string, or the texts of its parts. */
const textOf = (content: Json): string =>
  list(content)
    .map((part) => (typeof part === "string" ? part : typeof part?.text === "string" ? part.text : part?.json !== undefined ? show(part.json) : part?.text === undefined && part?.type !== "image" ? show(part) : ""))
    .filter(Boolean)
    .join("\n");

/** Reads one part of a message, in the form of any of the APIs. */
function readPart(part: Json): ChatPart[] {
  if (typeof part === "string") return [{ kind: "text", text: part }];
  if (!part || typeof part !== "object") return [];
  const seal = part.signature ?? part.encrypted_content ?? part.thoughtSignature ?? part.data ?? "";
  switch (part.type) {
    case "thinking": return [{ kind: "thought", text: show(part.thinking ?? ""), seal: show(seal) }];
    case "redacted_thinking": return [{ kind: "thought", text: "", seal: show(seal) }];
    case "reasoning": return [{ kind: "thought", text: textOf(part.summary ?? part.content), seal: show(seal) }];
    case "tool_use": return [{ kind: "tool_call", text: "", name: part.name, args: part.input }];
    case "tool_result": return [{ kind: "tool_result", text: textOf(part.content) }];
    case "function_call": return [{ kind: "tool_call", text: "", name: part.name, args: part.arguments }];
    case "function_call_output": return [{ kind: "tool_result", text: textOf(part.output) }];
    case "image":
    case "image_url":
    case "input_image":
    case "document":
    case "input_file": return [{ kind: "media", text: part.type }];
  }
  if (part.reasoningContent) {
    const { reasoningText, redactedContent } = part.reasoningContent;
    return [{ kind: "thought", text: show(reasoningText?.text ?? ""), seal: show(reasoningText?.signature ?? redactedContent ?? "") }];
  }
  if (part.toolUse) return [{ kind: "tool_call", text: "", name: part.toolUse.name, args: part.toolUse.input }];
  if (part.toolResult) return [{ kind: "tool_result", text: textOf(part.toolResult.content) }];
  if (part.functionCall) return [{ kind: "tool_call", text: "", name: part.functionCall.name, args: part.functionCall.args, seal: show(seal) }];
  if (part.functionResponse) return [{ kind: "tool_result", text: show(part.functionResponse.response) }];
  if (part.inlineData || part.fileData || part.image || part.document) return [{ kind: "media", text: part.inlineData?.mimeType ?? part.fileData?.mimeType ?? "media" }];
  if (typeof part.text === "string") return [{ kind: part.thought === true ? "thought" : "text", text: part.text, seal: show(seal) }];
  return [];
}

const ROLES: Record<string, string> = { model: "assistant", tool: "user", developer: "system" };

/** The types of the items of a Responses request that come from the model. */
const FROM_MODEL = /^(reasoning|.*_call)$/;

function readMessage(message: Json): ChatMessage {
  if (typeof message === "string") return { role: "user", parts: readPart(message) };
  if (message?.role === undefined) {
    return { role: FROM_MODEL.test(message?.type ?? "") ? "assistant" : "user", parts: readPart(message) };
  }
  const parts: ChatPart[] = [];
  if (typeof message.reasoning_content === "string") parts.push({ kind: "thought", text: message.reasoning_content });
  if (message.role === "tool") parts.push({ kind: "tool_result", text: textOf(message.content) });
  else parts.push(...list(message.content ?? message.parts).flatMap(readPart));
  for (const call of list(message.tool_calls)) parts.push({ kind: "tool_call", text: "", name: call?.function?.name, args: call?.function?.arguments });
  return { role: ROLES[message.role] ?? String(message.role), parts };
}

/** Returns the messages of a request, with the system prompt first. */
export function readConversation(body: unknown): ChatMessage[] {
  const request = body as Json;
  if (!request || typeof request !== "object") return [];
  const system = textOf(request.system ?? request.instructions ?? request.systemInstruction?.parts ?? request.system_instruction?.parts);
  const messages = list(request.messages ?? request.input ?? request.contents).map(readMessage);
  const all = system ? [{ role: "system", parts: [{ kind: "text" as const, text: system }] }, ...messages] : messages;
  return all.filter((message) => message.parts.some((part) => part.text || part.name || part.seal));
}

/** Returns all strings in a JSON value. */
export function stringsOf(value: unknown, found = new Set<string>()): Set<string> {
  if (typeof value === "string") found.add(value);
  else if (value && typeof value === "object") for (const inner of Object.values(value)) stringsOf(inner, found);
  return found;
}
