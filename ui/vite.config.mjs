// Builds a page, one script and one style sheet, named by their digests, and the list of files that
// the server includes.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const out = join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../crates/server/assets");

/** Writes `list.rs`: the files with their paths, in a stable order. */
function assetList() {
  return {
    name: "asset-list",
    writeBundle(_options, bundle) {
      const names = Object.keys(bundle).sort();
      const lines = names.map((name) => `    ("${name}", include_bytes!("${name}").as_slice()),\n`);
      writeFileSync(join(out, "list.rs"), `&[\n${lines.join("")}]\n`);
    },
  };
}

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        comments: false,
        entryFileNames: "assets/console-[hash].js",
        assetFileNames: "assets/console-[hash][extname]",
      },
    },
  },
  plugins: [assetList()],
  server: { proxy: Object.fromEntries(["/v1", "/openapi.json", "/docs"].map((path) => [path, "http://127.0.0.1:4400"])) },
});
