// The official `openai` client's Responses with `previous_response_id`: the gateway stores the conversation.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { AGAIN, DESCRIPTIONS, QUESTION, SCHEMAS, main, runTool } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function", name, description: DESCRIPTIONS[name], parameters, strict: false,
}));

function connect(url, model) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "no-key", maxRetries: 0 });
  return { client, model };
}

function ask({ client, model }, stream, request) {
  const whole = { model, tools, reasoning: { effort: "medium", summary: "auto" }, ...request };
  return stream ? client.responses.stream(whole).finalResponse() : client.responses.create(whole);
}

/** Two questions with tool loops; each call sends only new input. */
async function hold(connected, stream) {
  const responses = [];
  let [input, previous] = [QUESTION, undefined];
  for (let finals = 0; finals < 2; ) {
    const response = await ask(connected, stream, { input, previous_response_id: previous });
    assert.equal(response.status, "completed");
    responses.push(response);
    assert.ok(responses.length < 12, "the conversation does not end");
    previous = response.id;
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length > 0) {
      const results = calls.map((call) => runTool({ id: call.call_id, name: call.name, args: JSON.parse(call.arguments) }));
      input = results.map(({ id, text }) => ({ type: "function_call_output", call_id: id, output: text }));
      continue;
    }
    finals += 1;
    input = AGAIN;
  }
  await checkKept(connected.client, responses);
  return responses.length;
}

async function checkKept(client, responses) {
  let before = 0;
  for (const [number, response] of responses.entries()) {
    const kept = await client.responses.retrieve(response.id);
    assert.equal(kept.id, response.id);
    assert.deepEqual(kept.output.map((item) => item.type), response.output.map((item) => item.type));
    assert.equal(kept.previous_response_id ?? undefined, responses[number - 1]?.id);
    const listed = [];
    for await (const item of client.responses.inputItems.list(response.id, { order: "asc", limit: 2 })) listed.push(item);
    assert.ok(listed.length > before, `${listed.length} items after ${before}`);
    before = listed.length + response.output.length;
    assert.equal(listed[0].content[0].text, QUESTION);
  }
  const last = responses.at(-1).id;
  await client.responses.delete(last);
  await assert.rejects(client.responses.retrieve(last), OpenAI.NotFoundError);
  await client.responses.retrieve(responses[0].id);
}

await main(connect, hold);
