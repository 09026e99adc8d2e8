// The official `openai` client against /v1/chat/completions, in DeepSeek's dialect and in OpenAI's own.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { DESCRIPTIONS, QUESTION, SCHEMAS, everything, main, refused, runTool } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function", function: { name, description: DESCRIPTIONS[name], parameters },
}));

async function ask(url, model, messages, stream) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sim-key", maxRetries: 0 });
  if (!stream) {
    const { choices } = await client.chat.completions.create({ model, messages, tools });
    return choices[0].message;
  }
  const message = { role: "assistant", content: "" };
  for await (const chunk of await client.chat.completions.create({ model, messages, tools, stream: true })) {
    for (const { delta } of chunk.choices) {
      message.content += delta.content ?? "";
      if (delta.reasoning_content !== undefined && delta.reasoning_content !== null)
        message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
      for (const part of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        const call = (message.tool_calls[part.index] ??= { type: "function", function: { name: "", arguments: "" } });
        call.id = part.id ?? call.id;
        call.function.name += part.function?.name ?? "";
        call.function.arguments += part.function?.arguments ?? "";
      }
    }
  }
  return message;
}

const answers = (message) =>
  (message.tool_calls ?? []).map((call) => ({
    role: "tool", tool_call_id: call.id, content: runTool(call.function.name, JSON.parse(call.function.arguments)),
  }));

async function twoTurns(url, model, stream) {
  const messages = [{ role: "user", content: QUESTION }];
  const called = [];
  let thoughts = 0;
  for (let finals = 0; finals < 2; ) {
    const message = await ask(url, model, messages, stream);
    thoughts += message.reasoning_content ? 1 : 0;
    called.push(...(message.tool_calls ?? []).map((call) => call.function.name));
    messages.push(message, ...answers(message));
    if (message.tool_calls?.length) continue;
    assert.ok(message.content);
    finals += 1;
    messages.push({ role: "user", content: "Thank you. And once more, please." });
    assert.ok(messages.length < 40);
  }
  everything(called, model.startsWith("gpt") ? 2 : thoughts);
}

async function dropped(url) {
  const messages = [{ role: "user", content: QUESTION }];
  const message = await ask(url, "deepseek-v4", messages, false);
  const { reasoning_content: _, ...bare } = message;
  await refused(
    OpenAI.BadRequestError, () => ask(url, "deepseek-v4", [...messages, bare, ...answers(message)], false),
    "The reasoning_content in the thinking mode must be passed back to the API.",
  );
}

await main({
  openai_whole: (url) => twoTurns(url, "gpt-5.2", false),
  openai_streamed: (url) => twoTurns(url, "gpt-5.2", true),
  deepseek_whole: (url) => twoTurns(url, "deepseek-v4", false),
  deepseek_streamed: (url) => twoTurns(url, "deepseek-v4", true),
  dropped,
});
