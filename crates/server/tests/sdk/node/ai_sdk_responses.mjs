// Vercel's AI SDK with its OpenAI provider for Responses and default settings, which sends earlier
// model output as references to stored items. Each answer comes from the next model, also within
// tool loops.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { AGAIN, DESCRIPTIONS, QUESTION, SCHEMAS, runTool } from "./common.mjs";

const [url, , ...models] = process.argv.slice(2);

const tools = Object.fromEntries(
  Object.entries(SCHEMAS).map(([name, schema]) => [
    name,
    // Without `execute` each step is a separate call, so the next one can use another model.
    tool({ description: DESCRIPTIONS[name], inputSchema: jsonSchema(schema) }),
  ]),
);

/** The id of the gateway's call that answers a request. */
let call;
const openai = createOpenAI({
  baseURL: `${url}/v1`,
  apiKey: "no-key",
  fetch: async (...request) => {
    const response = await fetch(...request);
    call = response.headers.get("x-throughline-call");
    return response;
  },
});

async function ask(model, messages, streamed) {
  const request = {
    model: openai.responses(model),
    messages,
    tools,
    maxRetries: 0,
    providerOptions: { openai: { reasoningEffort: "medium", reasoningSummary: "auto", forceReasoning: true } },
    onError: ({ error }) => { throw error; },
  };
  if (!streamed) {
    const result = await generateText(request);
    return { messages: result.response.messages, calls: result.toolCalls, text: result.text };
  }
  const result = streamText(request);
  await result.consumeStream();
  return { messages: (await result.response).messages, calls: await result.toolCalls, text: await result.text };
}

/** The texts, call names and results in a message list. */
function contents(messages) {
  const found = [];
  for (const { content } of messages) {
    if (typeof content === "string") { found.push({ content }); continue; }
    for (const part of content) {
      const id = part.providerOptions?.openai?.itemId;
      if (part.type === "text" && part.text) found.push({ content: part.text, id });
      if (part.type === "tool-call") found.push({ content: part.toolName });
      if (part.type === "tool-result") found.push({ content: part.output.value });
    }
  }
  return found;
}

/** Compares the request at the provider with the client's own message list. */
async function check(messages, name) {
  const record = await (await fetch(`${url}/v1/throughline/calls/${call}`)).json();
  const sent = JSON.stringify(record.sent.body);
  assert.ok(!sent.includes("resp_tl1"), `${name}: a provider received an id of the gateway's: ${sent}`);
  // In a tool loop of another model Claude loses its thinking and Gemini a signature, as the header reports.
  const reasons = [...record.repaired, ...record.findings.filter(({ severity }) => severity === "degrade")];
  const isForeignLoop = reasons.some(({ rule }) => ["anthropic/tool-loop-needs-thinking", "gemini/stand-in-used"].includes(rule))
    || record.warnings.some(({ message }) => message.startsWith("the open tool loop began without"));
  const said = `${name}: ${JSON.stringify([record.repaired, record.findings, record.warnings, record.fates])}`;
  assert.equal(record.audit, isForeignLoop ? "degrade" : "accept", said);
  // OpenAI resolves references to items that it stores.
  const kept = new Set();
  for (const item of record.sent.body.input ?? []) if (item.type === "item_reference") kept.add(item.id);
  let [checked, referred] = [0, 0];
  for (const { content, id } of contents(messages)) {
    const written = JSON.stringify(content).slice(1, -1);
    // Results are JSON texts, which some wires send as values.
    const isThere = sent.includes(written) || sent.includes(JSON.stringify(written).slice(1, -1)) || sent.includes(content);
    assert.ok(isThere || kept.has(id), `${name}: ${written} is missing: ${sent}`);
    if (!isThere) referred += 1;
    checked += 1;
  }
  return { checked, referred };
}

/** A conversation of two questions with tool loops, answered by these models in turn. */
async function hold(tour, streamed, name) {
  const messages = [{ role: "user", content: QUESTION }];
  let [checked, referred, answers] = [0, 0, 0];
  for (let finals = 0; finals < 3; ) {
    const model = tour[answers % tour.length];
    const answer = await ask(model, messages, streamed);
    const compared = await check(messages, `${name}, answer ${answers} by ${model}`);
    checked += compared.checked;
    referred += compared.referred;
    answers += 1;
    assert.ok(answers < 30, "the conversation does not end");
    messages.push(...answer.messages);
    if (answer.calls.length > 0) {
      const results = answer.calls.map(({ toolCallId, toolName, input }) => ({
        type: "tool-result", toolCallId, toolName,
        output: { type: "text", value: runTool({ id: toolCallId, name: toolName, args: input }).text },
      }));
      messages.push({ role: "tool", content: results });
      continue;
    }
    assert.ok(answer.text, `${name}: no text`);
    finals += 1;
    messages.push({ role: "user", content: AGAIN });
  }
  return { answers, checked, referred };
}

const tours = models.map((_, first) => [...models.slice(first), ...models.slice(0, first)]);
tours.push([...models].reverse());
for (const model of models) tours.push([model]);
for (const streamed of [false, true]) {
  for (const tour of tours) {
    const name = `${tour.map((model) => model.replace("sim/", "")).join(" → ")} ${streamed ? "streamed" : "whole"}`;
    try {
      const { answers, checked, referred } = await hold(tour, streamed, name);
      console.log(`ok ${answers} ${checked} ${referred} ${name}`);
    } catch (error) {
      throw new Error(`${name}: ${error.responseBody ?? error}`, { cause: error });
    }
  }
}
