// Runs one prompt with the AI SDK and three tools, and prints the session and the answer as JSON.
//
// Arguments: MODEL SESSION PROMPT. The history is stored in the file SESSION. Environment:
// AI_SDK_PACKAGE selects the provider package, AI_SDK_MODE is stream, whole or lossy. A lossy
// history contains no reasoning, as in applications that store only texts and tool calls.

import { execFileSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { createAnthropic } from "@ai-sdk/anthropic"
import { createGoogleGenerativeAI } from "@ai-sdk/google"
import { createOpenAI } from "@ai-sdk/openai"
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { generateText, pruneMessages, stepCountIs, streamText, tool } from "ai"
import { z } from "zod"

const [name, session, prompt] = process.argv.slice(2)
const { AI_SDK_PACKAGE: dialect, AI_SDK_MODE: mode, THROUGHLINE_URL: url } = process.env
const apiKey = "any"

const models = {
  anthropic: () => createAnthropic({ baseURL: `${url}/v1`, apiKey })(name),
  // The package uses a name with a slash as the whole path.
  google: () => createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey })(`models/${name}`),
  openai: () => createOpenAI({ baseURL: `${url}/v1`, apiKey }).responses(name),
  "openai-compatible": () =>
    createOpenAICompatible({ name: "throughline", baseURL: `${url}/v1`, apiKey })(name),
}

const providerOptions = {
  anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } },
  google: { thinkingConfig: { includeThoughts: true } },
  openai: { store: false, include: ["reasoning.encrypted_content"], reasoningSummary: "auto" },
  throughline: { reasoningEffort: "medium" },
}

const tools = {
  read_file: tool({
    description: "Read a file",
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => readFileSync(path, "utf8"),
  }),
  edit_file: tool({
    description: "Replace a text in a file",
    inputSchema: z.object({ path: z.string(), old_text: z.string(), new_text: z.string() }),
    execute: ({ path, old_text, new_text }) => {
      const text = readFileSync(path, "utf8")
      if (!text.includes(old_text)) throw new Error(`${path} does not contain the text`)
      writeFileSync(path, text.replace(old_text, new_text))
      return "edited"
    },
  }),
  run_command: tool({
    description: "Run a shell command",
    inputSchema: z.object({ command: z.string() }),
    execute: ({ command }) => execFileSync("sh", ["-c", command], { encoding: "utf8" }),
  }),
}

const prune = (messages) =>
  mode === "lossy" ? pruneMessages({ messages, reasoning: "all" }) : messages

const history = existsSync(session) ? JSON.parse(readFileSync(session, "utf8")) : []
history.push({ role: "user", content: prompt })
const call = {
  model: models[dialect](),
  messages: prune(history),
  tools,
  providerOptions,
  maxOutputTokens: 8192,
  maxRetries: 0,
  stopWhen: stepCountIs(64),
  prepareStep: ({ messages }) => ({ messages: prune(messages) }),
}

let answer = ""
if (mode === "stream") {
  const result = streamText({
    ...call,
    onError: ({ error }) => {
      throw error
    },
  })
  for await (const text of result.textStream) answer += text
  history.push(...(await result.response).messages)
} else {
  const result = await generateText(call)
  answer = result.text
  history.push(...result.response.messages)
}
writeFileSync(session, JSON.stringify(history))
console.log(JSON.stringify({ session, answer }))
