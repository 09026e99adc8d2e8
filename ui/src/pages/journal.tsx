/** The Journal: verification, the signed manifest, and the export. */

import { useState } from "preact/hooks";
import { download, post, ApiError } from "../api";
import { count, plain } from "../format";
import { useFetch, useTitle } from "../hooks";
import { Copy, Loading, ErrorBox } from "../parts";

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

/** Maximum number of listed heads. */
const MAX_HEADS = 6;

export function JournalPage() {
  useTitle("Journal");
  const { value, problem, reload } = useFetch<Head>("/v1/throughline/journal");
  const [proof, setProof] = useState<Proof | null>(null);
  const [trouble, setTrouble] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState("");
  const act = async (name: string, work: () => Promise<void>) => {
    setBusy(name);
    setTrouble(null);
    try {
      await work();
    } catch (error) {
      setTrouble(error as ApiError);
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
      <header class="head">
        <div>
          <h1>Journal</h1>
          <p class="lead">An append-only log of everything that happened. Each record is linked to the previous one, and the heads of the chains are signed.</p>
        </div>
      </header>
      {problem ? <ErrorBox problem={problem} reload={reload} /> : null}
      {trouble ? <ErrorBox problem={trouble} /> : null}
      <section class="card" aria-labelledby="proof">
        <h2 id="proof">Verification</h2>
        <div role="status">{proof ? <Verdict proof={proof} /> : <p class="dim">Not verified yet in this session.</p>}</div>
        <div class="actions">
          <button class="primary" onClick={verify} disabled={busy !== ""}>
            {busy === "verify" ? "Verifying…" : "Verify every link, content and signature"}
          </button>
          <button onClick={() => act("export", () => download("/v1/throughline/journal/export", "throughline-export.jsonl"))} disabled={busy !== ""}>
            {busy === "export" ? "Exporting…" : "Export all threads"}
          </button>
        </div>
        <p class="hint">Verify an export with <code>throughline verify throughline-export.jsonl</code>. Common secrets are removed from it.</p>
      </section>
      {!value && !problem ? <Loading /> : null}
      {value ? (
        <section class="card" aria-labelledby="manifest">
          <h2 id="manifest">Manifest</h2>
          <p>
            A signed statement of the ends of the chains. Keep a copy elsewhere and compare it with the store later to detect removed records.
          </p>
          <dl class="facts wide">
            <dt>Signed by</dt>
            <dd>
              <code class="hex">{value.store}</code>
            </dd>
            <dt>Signature</dt>
            <dd>
              <code class="hex">{value.manifest.signature}</code>
            </dd>
          </dl>
          {heads.length ? (
            <div class="table">
              <table>
                <thead>
                  <tr>
                    <th>Writer</th>
                    <th class="number">Records</th>
                    <th>Last link</th>
                  </tr>
                </thead>
                <tbody>
                  {heads.slice(0, MAX_HEADS).map(([, , writer = "", position = "", link = ""]) => (
                    <tr>
                      <td data-label="Writer">
                        <code>{plain(writer)}</code>
                      </td>
                      <td data-label="Records" class="number">
                        {count(Number(position))}
                      </td>
                      <td data-label="Last link">
                        <code class="hex">{link.slice(0, 24)}…</code>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : null}
          {heads.length > MAX_HEADS ? <p class="hint">And {count(heads.length - MAX_HEADS)} more, one for each writing process. The manifest contains all of them.</p> : null}
          <div class="actions">
            <Copy text={JSON.stringify({ manifest: value.manifest })} label="Copy the manifest" />
          </div>
        </section>
      ) : null}
    </>
  );
}

function Verdict({ proof }: { proof: Proof }) {
  const isIntact = proof.verdict === "intact";
  return (
    <>
      <p class={`verdict ${isIntact ? "good" : "bad"}`}>
        <i aria-hidden="true">{isIntact ? "✓" : "✗"}</i> The journal is {isIntact ? "intact" : "broken"}
      </p>
      {proof.broken ? (
        <p>
          {plain(proof.broken.place)} {plain(proof.broken.problem)}
        </p>
      ) : null}
      <dl class="strip">
        <div>
          <dt>Records</dt>
          <dd class="number">{count(proof.records)}</dd>
        </div>
        <div>
          <dt>Chains</dt>
          <dd class="number">{count(proof.segments)}</dd>
        </div>
        <div>
          <dt>Signed manifests</dt>
          <dd class="number">{count(proof.manifests)}</dd>
        </div>
        <div>
          <dt>Erased records</dt>
          <dd class="number">{count(proof.without_content)}</dd>
        </div>
      </dl>
    </>
  );
}
