// The official `@anthropic-ai/sdk` client, through the gateway.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { DESCRIPTIONS, SCHEMAS, main } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, input_schema]) => ({ name, description: DESCRIPTIONS[name], input_schema }));
const isThought = ({ type }) => type === "thinking" || type === "redacted_thinking";

function connect(url, model) {
  const client = new Anthropic({ baseURL: url, apiKey: "no-key", maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    async ask(messages, stream) {
      const thinking = { type: "enabled", budget_tokens: 2048, display: "summarized" };
      const request = { model, max_tokens: 8192, thinking, tools, messages };
      const message = await (stream ? client.messages.stream(request).finalMessage() : client.messages.create(request));
      this.whole = message;
      const calls = message.content.some((block) => block.type === "tool_use");
      assert.equal(message.stop_reason, calls ? "tool_use" : "end_turn");
      return [{ role: "assistant", content: message.content }];
    },
    calls: ([{ content }]) =>
      content.filter((block) => block.type === "tool_use").map(({ id, name, input }) => ({ id, name, args: input })),
    results: (results) => [
      { role: "user", content: results.map(({ id, text }) => ({ type: "tool_result", tool_use_id: id, content: text })) },
    ],
    thoughts: ([{ content }]) => content.filter((block) => isThought(block) && block.signature).length,
    leastThoughts: 2,
    text: ([{ content }]) => content.map((block) => block.text ?? "").join(""),
    stripped: ([message]) => [{ ...message, content: message.content.filter((block) => !isThought(block)) }],
  };
}

await main(connect);
