// The official `openai` client's Responses, through the gateway.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { DESCRIPTIONS, SCHEMAS, main } from "./common.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function", name, description: DESCRIPTIONS[name], parameters, strict: false,
}));

function connect(url, model) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "no-key", maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    async ask(input, stream) {
      const request = {
        model, input, tools, store: false,
        include: ["reasoning.encrypted_content"], reasoning: { effort: "medium", summary: "auto" },
      };
      const response = await (stream ? client.responses.stream(request).finalResponse() : client.responses.create(request));
      this.whole = response;
      assert.equal(response.status, "completed");
      return response.output.map(({ parsed_arguments: _, ...item }) => item);
    },
    calls: (said) =>
      said
        .filter((item) => item.type === "function_call")
        .map((item) => ({ id: item.call_id, name: item.name, args: JSON.parse(item.arguments) })),
    results: (results) => results.map(({ id, text }) => ({ type: "function_call_output", call_id: id, output: text })),
    thoughts: (said) => said.filter((item) => item.type === "reasoning" && item.encrypted_content).length,
    leastThoughts: 2,
    text: (said) =>
      said
        .filter((item) => item.type === "message")
        .flatMap((item) => item.content)
        .map((part) => part.text)
        .join(""),
    stripped: (said) => said.filter((item) => item.type !== "reasoning"),
  };
}

await main(connect);
