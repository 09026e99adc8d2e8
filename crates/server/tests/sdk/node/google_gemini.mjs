// The official `@google/genai` client, through the gateway.
import assert from "node:assert/strict";
import { GoogleGenAI, ThinkingLevel } from "@google/genai";
import { DESCRIPTIONS, SCHEMAS, main } from "./common.mjs";

const functionDeclarations = Object.entries(SCHEMAS).map(([name, parametersJsonSchema]) => ({
  name, description: DESCRIPTIONS[name], parametersJsonSchema,
}));
const config = {
  tools: [{ functionDeclarations }],
  thinkingConfig: { includeThoughts: true, thinkingLevel: ThinkingLevel.LOW },
};

/** A response without connection headers. */
const told = ({ sdkHttpResponse: _, ...response }) => response;

function connect(url, model) {
  const client = new GoogleGenAI({ apiKey: "no-key", httpOptions: { baseUrl: url } });
  return {
    user: (text) => ({ role: "user", parts: [{ text }] }),
    async ask(contents, stream) {
      const request = { model, contents, config };
      if (!stream) {
        this.whole = told(await client.models.generateContent(request));
        const [candidate] = this.whole.candidates;
        assert.equal(candidate.finishReason, "STOP");
        return [candidate.content];
      }
      const parts = [];
      let finish;
      this.whole = [];
      for await (const chunk of await client.models.generateContentStream(request)) {
        this.whole.push(told(chunk));
        const { candidates } = chunk;
        parts.push(...(candidates[0].content?.parts ?? []));
        finish = candidates[0].finishReason ?? finish;
      }
      assert.equal(finish, "STOP");
      return [{ role: "model", parts }];
    },
    calls: ([{ parts }]) => parts.filter((part) => part.functionCall).map(({ functionCall }) => functionCall),
    results: (results) => [
      {
        role: "user",
        parts: results.map(({ id, name, text }) => ({ functionResponse: { id, name, response: { result: text } } })),
      },
    ],
    thoughts: ([{ parts }]) => parts.filter((part) => part.thoughtSignature).length,
    leastThoughts: 2,
    text: ([{ parts }]) => parts.map((part) => (part.thought ? "" : (part.text ?? ""))).join(""),
    stripped: ([{ role, parts }]) => [
      { role, parts: parts.filter((part) => !part.thought).map(({ thoughtSignature: _, ...part }) => part) },
    ],
  };
}

await main(connect);
