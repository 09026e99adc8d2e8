// Shared by the scripts: the tools, the conversation, and the report.
import assert from "node:assert/strict";

export const QUESTION = "What is the weather in Paris, and what time is it there?";
export const AGAIN = "Thank you. And once more, please.";

export const SCHEMAS = {
  get_weather: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  get_time: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] },
};
export const DESCRIPTIONS = { get_weather: "The weather in a city.", get_time: "The time in a zone." };

/** Runs a tool call and checks its arguments against the schema. */
export function runTool({ id, name, args }) {
  for (const key of SCHEMAS[name].required) assert.equal(typeof args[key], "string", `${name}: ${key}`);
  return { id, name, text: JSON.stringify({ tool: name, result: "sunny and noon" }) };
}

/** Two questions with tool loops. A lossy client sends no reasoning back. Returns the number of answers. */
async function converse(client, stream, lossy) {
  const history = [client.user(QUESTION)];
  const called = new Set();
  let [thoughts, answers] = [0, 0];
  for (let finals = 0; finals < 2; ) {
    const said = await client.ask(history, stream);
    answers += 1;
    assert.ok(answers < 12, "the conversation does not end");
    const calls = client.calls(said);
    for (const { name } of calls) called.add(name);
    thoughts += client.thoughts(said);
    history.push(...(lossy ? client.stripped(said) : said));
    if (calls.length > 0) {
      history.push(...client.results(calls.map(runTool)));
      continue;
    }
    assert.ok(client.text(said), JSON.stringify(said));
    finals += 1;
    history.push(client.user(AGAIN));
  }
  assert.deepEqual([...called].sort(), Object.keys(SCHEMAS).sort());
  assert.ok(thoughts >= client.leastThoughts, `${thoughts} thoughts`);
  return answers;
}

/** Sends one request and prints the parsed response. */
async function tell(client, stream) {
  await client.ask([client.user(QUESTION)], stream);
  console.log(JSON.stringify(client.whole));
}

/** Arguments: the gateway's address, `honest`, `lossy` or `tell`, and the models. Runs a whole and a streamed conversation per model. */
export async function main(connect, hold = converse) {
  const [url, keeping, ...models] = process.argv.slice(2);
  if (keeping === "tell") {
    for (const model of models) for (const stream of [false, true]) await tell(connect(url, model), stream);
    return;
  }
  for (const model of models) {
    for (const stream of [false, true]) {
      const name = `${model} ${keeping} ${stream ? "streamed" : "whole"}`;
      try {
        const answers = await hold(connect(url, model), stream, keeping === "lossy");
        console.log(`ok ${name}: ${answers} answers`);
      } catch (error) {
        throw new Error(`${name}: ${error}`, { cause: error });
      }
    }
  }
}
