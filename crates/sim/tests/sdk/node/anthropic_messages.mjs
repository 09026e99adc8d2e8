// The official `@anthropic-ai/sdk` client against /v1/messages.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { DESCRIPTIONS, QUESTION, SCHEMAS, everything, main, refused, runTool } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, input_schema]) => ({ name, description: DESCRIPTIONS[name], input_schema }));

async function ask(url, messages, stream) {
  const client = new Anthropic({ baseURL: url, apiKey: "sim-key", maxRetries: 0 });
  const request = { model: "claude-sonnet-4-5", max_tokens: 8192, thinking: { type: "enabled", budget_tokens: 2048 }, tools, messages };
  return stream ? client.messages.stream(request).finalMessage() : client.messages.create(request);
}

const results = (message) => ({
  role: "user",
  content: message.content
    .filter((block) => block.type === "tool_use")
    .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: runTool(block.name, block.input) })),
});

async function twoTurns(url, stream) {
  const messages = [{ role: "user", content: QUESTION }];
  const called = [];
  let thoughts = 0;
  for (let finals = 0; finals < 2; ) {
    const message = await ask(url, messages, stream);
    for (const block of message.content) {
      if (block.type === "thinking") {
        assert.ok(block.signature && block.thinking);
        thoughts += 1;
      }
      if (block.type === "tool_use") called.push(block.name);
    }
    messages.push({ role: "assistant", content: message.content });
    if (message.stop_reason === "tool_use") {
      messages.push(results(message));
      continue;
    }
    assert.equal(message.stop_reason, "end_turn");
    finals += 1;
    messages.push({ role: "user", content: "Thank you. And once more, please." });
    assert.ok(messages.length < 20);
  }
  everything(called, thoughts);
}

async function dropped(url) {
  const message = await ask(url, [{ role: "user", content: QUESTION }], false);
  const content = message.content.filter((block) => block.type !== "thinking");
  const messages = [{ role: "user", content: QUESTION }, { role: "assistant", content }, results(message)];
  await refused(Anthropic.BadRequestError, () => ask(url, messages, false), "Expected `thinking`");
  await refused(Anthropic.BadRequestError, () => ask(url, messages, true), "Expected `thinking`");
}

async function altered(url) {
  const message = await ask(url, [{ role: "user", content: QUESTION }], false);
  const content = structuredClone(message.content);
  content[0].signature = content[0].signature.slice(0, -8) + "AAAAAAA=";
  const messages = [{ role: "user", content: QUESTION }, { role: "assistant", content }, results(message)];
  await refused(Anthropic.BadRequestError, () => ask(url, messages, false), "Invalid `signature` in `thinking` block");
}

await main({ whole: (url) => twoTurns(url, false), streamed: (url) => twoTurns(url, true), dropped, altered });
