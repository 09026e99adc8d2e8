/** Writes a request as a Python program that uses the official SDK of its API. */

interface ReceivedRequest {
  path?: string;
  body?: unknown;
}

type Members = Record<string, unknown>;

/** An SDK and how it sends a request. */
interface Sdk {
  /** Matches the end of the path of requests in the API of the SDK. */
  path: RegExp;
  /** The lines before the call. `base` is the address of the gateway. */
  open: (base: string) => string[];
  call: string;
  /** Members that the SDK accepts as arguments. It sends all others from `extra_body`. */
  arguments: string[];
}

const KEY = `os.environ.get("THROUGHLINE_KEY", "any")`;
const openai = (base: string) => ["import os", "", "import openai", "", `client = openai.OpenAI(base_url=${literal(`${base}/v1`)}, api_key=${KEY})`];

const SDKS: Sdk[] = [
  {
    path: /\/v1\/messages$/,
    open: (base) => ["import os", "", "import anthropic", "", `client = anthropic.Anthropic(base_url=${literal(base)}, api_key=${KEY})`],
    call: "client.messages.create",
    arguments: ["model", "max_tokens", "system", "messages", "tools", "tool_choice", "thinking", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "stream"],
  },
  {
    path: /\/v1\/chat\/completions$/,
    open: openai,
    call: "client.chat.completions.create",
    arguments: ["model", "messages", "tools", "tool_choice", "reasoning_effort", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "parallel_tool_calls", "response_format", "metadata", "store", "stream"],
  },
  {
    path: /\/v1\/responses$/,
    open: openai,
    call: "client.responses.create",
    arguments: ["model", "instructions", "input", "tools", "tool_choice", "reasoning", "include", "previous_response_id", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "text", "metadata", "store", "stream"],
  },
];

/** Returns the program, or `null` if the request belongs to an API without such an SDK. */
export function pythonSnippet({ path = "", body }: ReceivedRequest): string | null {
  const route = path.split("?")[0]!;
  const sdk = SDKS.find((one) => one.path.test(route));
  if (!sdk || !body || typeof body !== "object" || Array.isArray(body)) return null;
  const members = body as Members;
  const known = sdk.arguments.filter((name) => name in members);
  const rest = Object.keys(members).filter((name) => !sdk.arguments.includes(name));
  const values = known.map((name) => `    ${name}=${literal(members[name], 4)},`);
  if (rest.length) values.push(`    extra_body=${literal(Object.fromEntries(rest.map((name) => [name, members[name]])), 4)},`);
  const answer = members.stream === true ? ["for event in reply:", "    print(event)"] : ["print(reply)"];
  return [...sdk.open(location.origin + route.replace(sdk.path, "")), `reply = ${sdk.call}(`, ...values, ")", ...answer, ""].join("\n");
}

/** Formats a JSON value as a Python literal, with nested values on lines of their own. */
function literal(value: unknown, indent = 0): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Array.isArray(value) ? value.map((one) => literal(one, indent + 4)) : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one, indent + 4)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length + indent < 80 && !line.includes("\n")) return line;
  const space = " ".repeat(indent + 4);
  return `${open}\n${items.map((item) => `${space}${item},\n`).join("")}${" ".repeat(indent)}${close}`;
}
