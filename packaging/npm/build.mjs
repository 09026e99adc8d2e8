// Builds the npm packages from the archives of a release: one package per platform with the binary,
// and the package `throughline`, which runs the binary of its platform.
//
// Usage: node packaging/npm/build.mjs VERSION ARCHIVES OUTPUT
//   ARCHIVES contains throughline-TARGET.tar.gz for at least one target.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const TARGETS = {
  "x86_64-unknown-linux-gnu": { os: "linux", cpu: "x64", libc: ["glibc"] },
  "aarch64-unknown-linux-gnu": { os: "linux", cpu: "arm64", libc: ["glibc"] },
  "x86_64-apple-darwin": { os: "darwin", cpu: "x64" },
  "aarch64-apple-darwin": { os: "darwin", cpu: "arm64" },
};

const [version, archives, output] = process.argv.slice(2);
if (!version || !archives || !output) {
  console.error("usage: node packaging/npm/build.mjs VERSION ARCHIVES OUTPUT");
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
const main = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
const { description, license, repository } = main;
const optionalDependencies = {};
rmSync(output, { recursive: true, force: true });

for (const [target, { os, cpu, libc }] of Object.entries(TARGETS)) {
  const archive = join(archives, `throughline-${target}.tar.gz`);
  if (!existsSync(archive)) continue;
  const folder = join(output, `${os}-${cpu}`);
  mkdirSync(folder, { recursive: true });
  const files = ["throughline", "LICENSE-APACHE", "LICENSE-MIT"];
  const members = files.map((file) => `throughline-${target}/${file}`);
  execFileSync("tar", ["-xzf", archive, "-C", folder, "--strip-components=1", ...members]);
  const name = `@throughline/${os}-${cpu}`;
  const platform = { os: [os], cpu: [cpu], ...(libc && { libc }) };
  write(folder, { name, version, description, license, repository, files, ...platform });
  optionalDependencies[name] = version;
}
if (Object.keys(optionalDependencies).length === 0) {
  console.error(`${archives} contains no throughline-TARGET.tar.gz`);
  process.exit(1);
}
const folder = join(output, "throughline");
cpSync(join(here, "bin"), join(folder, "bin"), { recursive: true });
write(folder, { ...main, version, optionalDependencies });

function write(folder, manifest) {
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}
