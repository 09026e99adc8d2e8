/** The Journal: verification, the signed manifest, and the export. */

import { useState } from "preact/hooks";
import { download, post, ApiError } from "../api";
import { count, plain } from "../format";
import { useFetch, useTitle } from "../hooks";
import { Copy, ErrorBox, Fact, FetchStatus, PageHead, Table, type Column } from "../parts";

interface Head {
  store: string;
  manifest: { body: string; signature: string };
}

interface Proof {
  verdict: string;
  records: number;
  without_content: number;
  segments: number;
  manifests: number;
  broken?: { place: string; problem: string };
}

/** Maximum number of chain heads shown. */
const MAX_HEADS = 6;

export function JournalPage() {
  useTitle("Journal");
  const journal = useFetch<Head>("/v1/throughline/journal");
  const { value } = journal;
  const [proof, setProof] = useState<Proof | null>(null);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState("");
  const act = async (name: string, work: () => Promise<void>) => {
    setBusy(name);
    setProblem(null);
    try {
      await work();
    } catch (error) {
      setProblem(error as ApiError);
    }
    setBusy("");
  };
  const verify = () => act("verify", async () => setProof(await post<Proof>("/v1/throughline/journal/verify", {})));
  const heads = (value?.manifest.body ?? "")
    .split("\n")
    .filter((line) => line.startsWith("head\t"))
    .map((line) => line.split("\t"));
  return (
    <>
      <PageHead title="Journal" lead="An append-only log of everything that happened. Each record is linked to the previous record, and the last record of each chain is signed." />
      {problem ? <ErrorBox problem={problem} /> : null}
      <section class="card" aria-labelledby="proof">
        <h2 id="proof">Verification</h2>
        <div role="status">{proof ? <Verdict proof={proof} /> : <p class="dim">The Journal has not been verified in this session.</p>}</div>
        <div class="actions">
          <button class="primary" onClick={verify} disabled={busy !== ""}>
            {busy === "verify" ? "Verifying…" : "Verify every link, content and signature"}
          </button>
          <button onClick={() => act("export", () => download("/v1/throughline/journal/export", "throughline-export.jsonl"))} disabled={busy !== ""}>
            {busy === "export" ? "Exporting…" : "Export all Threads"}
          </button>
        </div>
        <p class="hint">Verify an export with <code>throughline verify throughline-export.jsonl</code>. Common secrets are redacted in exports.</p>
      </section>
      <FetchStatus state={journal} />
      {value ? (
        <section class="card" aria-labelledby="manifest">
          <h2 id="manifest">Manifest</h2>
          <p>A signed list of the last record of each chain. Keep a copy elsewhere, and compare the copy with the store later to detect removed records.</p>
          <dl class="facts wide">
            <dt>Signed by</dt>
            <dd><code class="hex">{value.store}</code></dd>
            <dt>Signature</dt>
            <dd><code class="hex">{value.manifest.signature}</code></dd>
          </dl>
          {heads.length ? <Table rows={heads.slice(0, MAX_HEADS)} columns={HEAD_COLUMNS} /> : null}
          {heads.length > MAX_HEADS ? <p class="hint">And {count(heads.length - MAX_HEADS)} more, one for each writing process. The manifest contains all of them.</p> : null}
          <div class="actions">
            <Copy text={JSON.stringify({ manifest: value.manifest })} label="Copy manifest" />
          </div>
        </section>
      ) : null}
    </>
  );
}

/** Table columns for the tab-separated fields of a `head` line in the manifest. */
const HEAD_COLUMNS: Column<string[]>[] = [
  ["Writer", ([, , writer = ""]) => <code>{plain(writer)}</code>],
  ["Records", ([, , , position = ""]) => count(Number(position)), "number"],
  ["Hash of the last record", ([, , , , link = ""]) => <code class="hex">{link.slice(0, 24)}…</code>],
];

function Verdict({ proof }: { proof: Proof }) {
  const isIntact = proof.verdict === "intact";
  return (
    <>
      <p class={`verdict ${isIntact ? "good" : "bad"}`}>
        <i aria-hidden="true">{isIntact ? "✓" : "✗"}</i> The Journal is {isIntact ? "intact" : "broken"}
      </p>
      {proof.broken ? <p>{plain(proof.broken.place)} {plain(proof.broken.problem)}</p> : null}
      <dl class="strip">
        <Fact name="Records">{count(proof.records)}</Fact>
        <Fact name="Chains">{count(proof.segments)}</Fact>
        <Fact name="Signed manifests">{count(proof.manifests)}</Fact>
        <Fact name="Erased records">{count(proof.without_content)}</Fact>
      </dl>
    </>
  );
}
