// The official `openai` client against /v1/responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { DESCRIPTIONS, QUESTION, SCHEMAS, everything, main, refused, runTool } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function", name, description: DESCRIPTIONS[name], parameters, strict: false,
}));

async function ask(url, input, stream, store = false) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sim-key", maxRetries: 0 });
  const request = {
    model: "gpt-5.2", input, tools, store, include: ["reasoning.encrypted_content"], reasoning: { effort: "medium", summary: "auto" },
  };
  if (!stream) return (await client.responses.create(request)).output;
  const output = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_item.done") output.push(event.item);
  }
  return output;
}

const outputs = (items) =>
  items
    .filter((item) => item.type === "function_call")
    .map((item) => ({ type: "function_call_output", call_id: item.call_id, output: runTool(item.name, JSON.parse(item.arguments)) }));

async function twoTurns(url, stream) {
  const input = [{ role: "user", content: QUESTION }];
  const called = [];
  let thoughts = 0;
  for (let finals = 0; finals < 2; ) {
    const items = await ask(url, input, stream);
    thoughts += items.filter((item) => item.type === "reasoning" && item.encrypted_content).length;
    called.push(...items.filter((item) => item.type === "function_call").map((item) => item.name));
    input.push(...items, ...outputs(items));
    if (outputs(items).length > 0) continue;
    assert.ok(items.some((item) => item.type === "message"));
    finals += 1;
    input.push({ role: "user", content: "Thank you. And once more, please." });
    assert.ok(input.length < 40);
  }
  everything(called, thoughts);
}

async function altered(url) {
  const input = [{ role: "user", content: QUESTION }];
  const items = await ask(url, input, false);
  const sent = structuredClone(items);
  const reasoning = sent.find((item) => item.type === "reasoning");
  reasoning.encrypted_content = reasoning.encrypted_content.slice(0, -8) + "AAAAAAA=";
  const error = await refused(
    OpenAI.BadRequestError, () => ask(url, [...input, ...sent, ...outputs(items)], false), "could not be verified",
  );
  assert.equal(error.code, "invalid_encrypted_content");
}

async function unpaired(url) {
  const input = [{ role: "user", content: QUESTION }];
  const items = await ask(url, input, false, true);
  const sent = items.map((item) => (item.type === "function_call" ? { ...item, id: undefined } : item));
  await refused(
    OpenAI.BadRequestError, () => ask(url, [...input, ...sent, ...outputs(items)], false, true), "required following item",
  );
}

await main({ whole: (url) => twoTurns(url, false), streamed: (url) => twoTurns(url, true), altered, unpaired });
