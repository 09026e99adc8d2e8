// The official clients list the gateway's models. Arguments: the gateway's address, a word that is
// not used, and the expected models.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

const [url, , ...expected] = process.argv.slice(2);

async function collect(pages) {
  const all = [];
  for await (const model of pages) all.push(model);
  return all;
}

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "no-key", maxRetries: 0 });
assert.deepEqual((await collect(openai.models.list())).map(({ id }) => id), expected);
assert.equal((await openai.models.retrieve(expected[0])).id, expected[0]);
await assert.rejects(openai.models.retrieve("nothing"), OpenAI.NotFoundError);
console.log("ok openai");

const anthropic = new Anthropic({ baseURL: url, apiKey: "no-key", maxRetries: 0 });
assert.deepEqual((await collect(anthropic.models.list({ limit: 1 }))).map(({ id }) => id), expected);
assert.equal((await anthropic.models.retrieve(expected[0])).display_name, "Claude Sonnet 4.5");
await assert.rejects(anthropic.models.retrieve("nothing"), Anthropic.NotFoundError);
console.log("ok anthropic");

const google = new GoogleGenAI({ apiKey: "no-key", httpOptions: { baseUrl: url } });
const listed = await collect(await google.models.list({ config: { pageSize: 3 } }));
assert.deepEqual(listed.map(({ name }) => name), expected.map((name) => `models/${name}`));
assert.equal((await google.models.get({ model: `models/${expected[2]}` })).name, `models/${expected[2]}`);
await assert.rejects(google.models.get({ model: "models/nothing" }), { status: 404 });
console.log("ok google");
