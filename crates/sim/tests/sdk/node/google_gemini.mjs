// The official `@google/genai` client against generateContent and streamGenerateContent.
import assert from "node:assert/strict";
import { ApiError, GoogleGenAI, ThinkingLevel } from "@google/genai";
import { DESCRIPTIONS, QUESTION, SCHEMAS, everything, main, refused, runTool } from "./common.mjs";

const model = "gemini-3-pro-preview";
const config = {
  tools: [
    {
      functionDeclarations: Object.entries(SCHEMAS).map(([name, parametersJsonSchema]) => ({
        name, description: DESCRIPTIONS[name], parametersJsonSchema,
      })),
    },
  ],
  thinkingConfig: { includeThoughts: true, thinkingLevel: ThinkingLevel.LOW },
};

async function ask(url, contents, stream) {
  const client = new GoogleGenAI({ apiKey: "sim-key", httpOptions: { baseUrl: url } });
  if (!stream) return (await client.models.generateContent({ model, contents, config })).candidates[0].content;
  const parts = [];
  for await (const chunk of await client.models.generateContentStream({ model, contents, config }))
    parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
  return { role: "model", parts };
}

const user = (text) => ({ role: "user", parts: [{ text }] });
const results = (content) => ({
  role: "user",
  parts: content.parts
    .filter((part) => part.functionCall)
    .map(({ functionCall: { id, name, args } }) => ({ functionResponse: { id, name, response: { result: runTool(name, args) } } })),
});

async function twoTurns(url, stream) {
  const contents = [user(QUESTION)];
  const called = [];
  let signed = 0;
  for (let finals = 0; finals < 2; ) {
    const content = await ask(url, contents, stream);
    signed += content.parts.filter((part) => part.thoughtSignature).length;
    const calls = content.parts.filter((part) => part.functionCall).map((part) => part.functionCall.name);
    called.push(...calls);
    contents.push(content);
    if (calls.length > 0) {
      contents.push(results(content));
      continue;
    }
    assert.ok(content.parts.some((part) => part.text && !part.thought));
    finals += 1;
    contents.push(user("Thank you. And once more, please."));
    assert.ok(contents.length < 20);
  }
  everything(called, signed);
}

async function dropped(url) {
  const content = await ask(url, [user(QUESTION)], false);
  const bare = { ...content, parts: content.parts.map(({ thoughtSignature: _, ...part }) => part) };
  const contents = [user(QUESTION), bare, results(content)];
  await refused(ApiError, () => ask(url, contents, false), "missing a thought_signature");
  await refused(ApiError, () => ask(url, contents, true), "missing a thought_signature");
}

await main({ whole: (url) => twoTurns(url, false), streamed: (url) => twoTurns(url, true), dropped });
