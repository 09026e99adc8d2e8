// Letta's own client with simulated models: two questions with tools, whole and streamed by token.
// Arguments: the gateway's address, a key, and the models.
import assert from "node:assert/strict";
import Letta from "@letta-ai/letta-client";
import { AGAIN, QUESTION } from "./common.mjs";

const [url, key, ...models] = process.argv.slice(2);
const client = new Letta({ baseURL: url, apiKey: key, maxRetries: 0 });

/** The messages of the answer. */
async function ask(agent, content, tokens) {
  const messages = [{ role: "user", content }];
  if (!tokens) return (await client.agents.messages.create(agent.id, { messages })).messages;
  const chunks = [];
  const stream = await client.agents.messages.stream(agent.id, { messages, stream_tokens: true, background: true });
  for await (const chunk of stream) if (chunk.message_type !== "ping") chunks.push(chunk);
  assert.deepEqual(chunks.map((chunk) => chunk.seq_id), chunks.map((_, place) => place + 1));
  const listed = [];
  for await (const one of client.runs.messages.list(chunks[0].run_id)) {
    if (one.message_type !== "user_message") listed.push(one);
  }
  const signed = (all) => all.filter((one) => one.signature).map((one) => [one.id, one.signature]);
  assert.deepEqual(signed(chunks), signed(listed));
  return listed;
}

for (const model of models) {
  for (const tokens of [false, true]) {
    const agent = await client.agents.create({ name: "Ada", model, tools: ["get_weather", "get_time"] });
    const called = new Set();
    let thoughts = 0;
    for (const text of [QUESTION, AGAIN]) {
      const messages = await ask(agent, text, tokens);
      for (const one of messages) {
        if (one.message_type === "tool_call_message") for (const call of one.tool_calls) called.add(call.name);
        if (one.message_type.endsWith("reasoning_message")) thoughts += 1;
      }
      assert.equal(messages.at(-1).message_type, "assistant_message");
      // Renaming the agent does not affect its thoughts.
      await client.agents.update(agent.id, { name: "Eve" });
    }
    for (const tool of ["get_time", "get_weather"]) assert.ok(called.has(tool), tool);
    assert.ok(thoughts > 0, model);
    console.log(`ok ${model} ${tokens ? "token by token" : "whole"}: ${thoughts} thoughts`);
  }
}
