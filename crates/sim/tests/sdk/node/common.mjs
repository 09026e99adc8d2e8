// Shared by the scripts: the offered tools, and the reporting of checks.
import assert from "node:assert/strict";

export const QUESTION = "What is the weather in Paris, and what time is it there?";

export const SCHEMAS = {
  get_weather: {
    type: "object",
    properties: { city: { type: "string" }, unit: { type: "string", enum: ["celsius", "fahrenheit"] } },
    required: ["city"],
  },
  get_time: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] },
};
export const DESCRIPTIONS = { get_weather: "The weather in a city.", get_time: "The time in a zone." };

/** Checks the arguments of a call against the schema and returns a result. */
export function runTool(name, args) {
  for (const key of SCHEMAS[name].required) assert.equal(typeof args[key], "string", `${name}: ${key}`);
  return JSON.stringify({ tool: name, result: "sunny and noon" });
}

/** Asserts that both tools were called and at least two thoughts were returned. */
export function everything(called, thoughts) {
  assert.deepEqual([...new Set(called)].sort(), Object.keys(SCHEMAS).sort());
  assert.ok(thoughts >= 2, `${thoughts} thoughts`);
}

/** Asserts that the SDK throws its own error with the provider's message. */
export async function refused(kind, attempt, ...words) {
  try {
    await attempt();
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`);
    for (const word of words) assert.ok(String(error).includes(word), `expected ${word} in: ${error}`);
    return error;
  }
  assert.fail(`was accepted, but should have been refused with ${words}`);
}

/** Runs the checks against the simulator at the URL in the script's argument. */
export async function main(checks) {
  for (const [name, check] of Object.entries(checks)) {
    await check(process.argv[2]);
    console.log(`ok ${name}`);
  }
}
