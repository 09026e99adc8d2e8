#!/usr/bin/env node
// Runs the binary of this platform, which npm installs as an optional dependency.
"use strict";

const { spawnSync } = require("node:child_process");

const name = `@throughline/${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/throughline`);
} catch {
  console.error(
    `throughline: the package ${name} is not installed. Reinstall throughline with optional ` +
      "dependencies, or build it from source: https://github.com/throughline/throughline",
  );
  process.exit(1);
}
const result = spawnSync(binary, process.argv.slice(2), { stdio: "inherit" });
if (result.error) {
  console.error(`throughline: cannot run ${binary}: ${result.error.message}`);
  process.exit(1);
}
if (result.signal) {
  process.kill(process.pid, result.signal);
}
process.exit(result.status ?? 1);
