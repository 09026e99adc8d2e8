// The official clients with their default retries, and a key whose budget is used up.
// Arguments: the gateway's address, an ignored word, and the name of a client.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

const model = "claude-sonnet-4-5";
const messages = [{ role: "user", content: "Hello" }];
const [url, , name] = process.argv.slice(2);

const clients = {
  openai_chat: () =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: "tl_key" }).chat.completions.create({ model, messages }),
  openai_responses: () =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: "tl_key" }).responses.create({ model, input: "Hello" }),
  anthropic_messages: () =>
    new Anthropic({ baseURL: url, apiKey: "tl_key" }).messages.create({ model, max_tokens: 100, messages }),
  google_gemini: () =>
    new GoogleGenAI({ apiKey: "tl_key", httpOptions: { baseUrl: url } })
      .models.generateContent({ model, contents: "Hello" }),
};

try {
  await clients[name]();
} catch (error) {
  assert.match(String(error), /budget/);
  console.log(`ok ${error.constructor.name}`);
}
