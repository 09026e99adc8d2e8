// Letta's own client, unmodified: agents, messages, resumed streams, approvals, client tools,
// conversations and forks.
// Arguments: the gateway's address, a key, and a model.
import assert from "node:assert/strict";
import Letta from "@letta-ai/letta-client";

const [url, key, model] = process.argv.slice(2);
const client = new Letta({ baseURL: url, apiKey: key, maxRetries: 0 });

const agent = (more = {}) =>
  client.agents.create({ name: "Ada", model, system: "Be kind.", tools: ["get_weather", "send_mail"], ...more });
const user = (content, more = {}) => ({ role: "user", content, ...more });
const kinds = (messages) => messages.map((message) => message.message_type);

async function all(pages) {
  const found = [];
  for await (const one of pages) found.push(one);
  return found;
}

async function read(stream) {
  const chunks = await all(await stream);
  return chunks.filter((chunk) => chunk.message_type !== "ping");
}

/** The error detail of a refused request. */
async function refused(promise, status) {
  const error = await promise.then(
    () => assert.fail(`a ${status} was expected`),
    (error) => error,
  );
  assert.equal(error.status, status, String(error));
  return error.error.detail;
}

/** Joins deltas by message. */
function whole(chunks) {
  const joined = {};
  for (const chunk of chunks) {
    const text = chunk.reasoning ?? chunk.content;
    if (typeof text === "string") joined[chunk.id] = (joined[chunk.id] ?? "") + text;
  }
  return joined;
}

async function agents() {
  const made = await agent({ tags: ["a"], memory_blocks: [{ label: "human", value: "Likes tea." }] });
  assert.equal(made.blocks[0].label, "human");
  assert.equal((await client.agents.retrieve(made.id)).name, "Ada");
  assert.equal((await client.agents.update(made.id, { name: "Eve" })).name, "Eve");
  const others = [];
  for (let number = 0; number < 4; number++) others.push((await agent()).id);
  const listed = (await all(client.agents.list({ limit: 2 }))).map((found) => found.id);
  assert.deepEqual(listed, [...others.reverse(), made.id]);
  for (const gone of others) await client.agents.delete(gone);
  await refused(client.agents.retrieve(others[0]), 404);
}

async function messages() {
  const ada = await agent();
  const said = await client.agents.messages.create(ada.id, { messages: [user("What is the weather?")] });
  assert.deepEqual(kinds(said.messages), [
    "reasoning_message", "reasoning_message", "tool_call_message", "tool_return_message",
    "reasoning_message", "reasoning_message", "assistant_message",
  ]);
  const signatures = said.messages.filter((one) => one.message_type === "reasoning_message").map((one) => one.signature);
  assert.equal(new Set(signatures).size, 4);
  assert.equal(said.stop_reason.stop_reason, "end_turn");
  assert.equal((await all(client.agents.messages.list(ada.id, { limit: 3 }))).length, 8);
  const run = await client.runs.retrieve(said.messages[0].run_id);
  assert.equal(run.agent_id, ada.id);
  assert.equal((await all(client.runs.messages.list(run.id))).length, 8);
  assert.equal((await all(client.runs.steps.list(run.id))).length, 2);
  assert.equal((await client.runs.usage.retrieve(run.id)).total_tokens, 220);
  const later = await client.agents.messages.createAsync(ada.id, { messages: [user("slow")] });
  const busy = await refused(client.agents.messages.create(ada.id, { messages: [user("other")] }), 409);
  assert.equal(busy.run_id, later.id);
  assert.deepEqual(await client.agents.messages.cancel(ada.id), { [later.id]: "cancelled" });
  const twice = [user("a", { otid: "x" }), user("b", { otid: "x" })];
  assert.match(await refused(client.agents.messages.create(ada.id, { messages: twice }), 422), /is repeated/);
  await client.agents.messages.reset(ada.id, {});
  assert.deepEqual(await all(client.agents.messages.list(ada.id)), []);
}

async function streams() {
  const ada = await agent();
  for (const stream_tokens of [false, true]) {
    const chunks = await read(client.agents.messages.stream(ada.id, { messages: [user("weather")], stream_tokens }));
    assert.deepEqual(kinds(chunks).slice(-2), ["stop_reason", "usage_statistics"]);
    const listed = whole(await all(client.runs.messages.list(chunks[0].run_id)));
    for (const [id, text] of Object.entries(whole(chunks))) assert.equal(listed[id], text);
    if (stream_tokens) assert.ok(chunks.length > 12);
  }
}

/** Cuts the connection at different places and resumes the stream from the last number. */
async function background() {
  const ada = await agent();
  for (let number = 0; number < 8; number++) {
    const seen = [];
    let [run, after, cut] = [undefined, 0, number];
    while (seen.at(-1)?.message_type !== "usage_statistics") {
      const said = [user(`weather ${number}`, { otid: `otid-${number}` })];
      const stream = run
        ? await client.runs.messages.stream(run, { starting_after: after })
        : await client.agents.messages.stream(ada.id, { messages: said, stream_tokens: true, background: true });
      cut = ((cut * 5 + 3) % 7) + 1;
      let left = cut;
      for await (const chunk of stream) {
        if (chunk.message_type === "ping") continue;
        seen.push(chunk);
        [run, after] = [chunk.run_id, chunk.seq_id];
        if (--left === 0) break;
      }
    }
    assert.deepEqual(seen.map((chunk) => chunk.seq_id), seen.map((_, place) => place + 1));
  }
}

async function approvals() {
  const ada = await agent();
  const said = await client.agents.messages.create(ada.id, { messages: [user("Send a mail.")] });
  assert.equal(said.stop_reason.stop_reason, "requires_approval");
  const request = said.messages.at(-1);
  const pending = await refused(client.agents.messages.create(ada.id, { messages: [user("Hello?")] }), 409);
  assert.equal(pending.pending_request_id, request.id);
  const decided = [{ type: "approval", tool_call_id: request.tool_call.tool_call_id, approve: true }];
  const decisions = [{ type: "approval", approvals: decided }];
  const chunks = await read(client.agents.messages.stream(ada.id, { messages: decisions }));
  assert.equal(chunks.at(-2).stop_reason, "end_turn");
  await refused(client.agents.messages.create(ada.id, { messages: decisions }), 409);
}

async function ownTools() {
  const ada = await agent();
  const parameters = { type: "object", properties: { zone: { type: "string" } } };
  const client_tools = [{ name: "local_time", description: "The time here.", parameters }];
  const said = await client.agents.messages.create(ada.id, { messages: [user("Look at the clock.")], client_tools });
  const { tool_call_id } = said.messages.at(-1).tool_call;
  const returned = [{ type: "tool", tool_call_id, tool_return: "noon", status: "success" }];
  const answered = await client.agents.messages.create(ada.id, {
    messages: [{ type: "approval", approvals: returned }],
    client_tools,
  });
  assert.equal(answered.messages[0].tool_return, "noon");
}

async function conversations() {
  const ada = await agent();
  const talk = await client.conversations.create({ agent_id: ada.id, summary: "Tea" });
  assert.equal((await client.conversations.retrieve(talk.id)).summary, "Tea");
  const chunks = await read(client.conversations.messages.create(talk.id, { messages: [user("One")] }));
  assert.equal(chunks.at(-2).stop_reason, "end_turn");
  const fork = await client.conversations.fork(talk.id);
  await read(client.conversations.messages.create(fork.id, { messages: [user("Two")] }));
  assert.equal((await all(client.conversations.messages.list(fork.id))).length, 8);
  assert.equal((await all(client.conversations.messages.list(talk.id))).length, 4);
  assert.equal((await client.conversations.messages.compact(fork.id)).summary, "They talked.");
  const listed = await client.conversations.list({ agent_id: ada.id });
  assert.deepEqual(new Set(listed.map((found) => found.id)), new Set([talk.id, fork.id]));
}

/** Checks that paging through every list takes a number of requests bounded by its objects. */
async function lists() {
  let asked = 0;
  const fetcher = (...args) => (asked++, fetch(...args));
  const client = new Letta({ baseURL: url, apiKey: key, maxRetries: 0, fetch: fetcher });
  const memory_blocks = [0, 1, 2, 3, 4].map((number) => ({ label: `b${number}`, value: "x" }));
  const ada = await agent({ memory_blocks });
  for (let turn = 0; turn < 2; turn++) await client.agents.messages.create(ada.id, { messages: [user("weather")] });
  const [{ id: run }] = await all(client.runs.list({ agent_id: ada.id }));
  const talk = await client.conversations.create({ agent_id: ada.id });
  await read(client.conversations.messages.create(talk.id, { messages: [user("One")] }));
  const pages = {
    agents: (page) => client.agents.list(page),
    tools: (page) => client.tools.list(page),
    "agents.tools": (page) => client.agents.tools.list(ada.id, page),
    "agents.blocks": (page) => client.agents.blocks.list(ada.id, page),
    "agents.messages": (page) => client.agents.messages.list(ada.id, page),
    runs: (page) => client.runs.list({ agent_id: ada.id, ...page }),
    "runs.messages": (page) => client.runs.messages.list(run, page),
    "runs.steps": (page) => client.runs.steps.list(run, page),
    "conversations.messages": (page) => client.conversations.messages.list(talk.id, page),
  };
  for (const [name, page] of Object.entries(pages)) {
    const ids = async (query) => (await all(page(query))).map((one) => one.id);
    const whole = await ids({ limit: 1000 });
    asked = 0;
    assert.deepEqual(await ids({ limit: 1 }), whole, name);
    const forwards = asked;
    asked = 0;
    assert.deepEqual((await ids({ limit: 1, before: whole.at(-1) })).sort(), whole.slice(0, -1).sort(), name);
    assert.ok(forwards <= whole.length + 1 && asked <= whole.length + 1, `${name}: ${forwards}, ${asked}`);
    console.log(`list ${name}: ${whole.length} objects, ${forwards} requests forwards, ${asked} backwards`);
  }
}

for (const part of [agents, messages, streams, background, approvals, ownTools, conversations, lists]) {
  await part();
  console.log(`ok ${part.name}`);
}
