// The official `openai` client's chat completions, through the gateway.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { DESCRIPTIONS, SCHEMAS, main } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function", function: { name, description: DESCRIPTIONS[name], parameters },
}));

/** The client's accumulator ignores unknown members, so the reasoning is joined here. */
async function streamed(client, request) {
  const events = client.chat.completions.stream(request);
  let reasoning = "";
  for await (const chunk of events) reasoning += chunk.choices[0]?.delta?.reasoning_content ?? "";
  const completion = await events.finalChatCompletion();
  if (reasoning) completion.choices[0].message.reasoning_content = reasoning;
  return completion;
}

function connect(url, model) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "no-key", maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    async ask(messages, stream) {
      const request = { model, messages, tools, reasoning_effort: "medium" };
      this.whole = await (stream ? streamed(client, request) : client.chat.completions.create(request));
      const [{ message, finish_reason }] = this.whole.choices;
      assert.equal(finish_reason, message.tool_calls?.length ? "tool_calls" : "stop");
      const { parsed: _, ...said } = message;
      return [said];
    },
    calls: ([{ tool_calls = [] }]) =>
      (tool_calls ?? []).map((call) => ({ id: call.id, name: call.function.name, args: JSON.parse(call.function.arguments) })),
    results: (results) => results.map(({ id, text }) => ({ role: "tool", tool_call_id: id, content: text })),
    thoughts: ([message]) => (message.reasoning_content ? 1 : 0),
    // This dialect cannot request a summary of hidden reasoning.
    leastThoughts: /claude|deepseek/.test(model) ? 2 : 0,
    text: ([message]) => message.content,
    stripped: ([{ reasoning_content: _, reasoning: __, reasoning_details: ___, ...message }]) => [message],
  };
}

await main(connect);
