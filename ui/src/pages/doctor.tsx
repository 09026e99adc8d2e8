/** The doctor: paste a request, and see what its provider would say, the smallest repair, and the same for another provider. */

import { useState } from "preact/hooks";
import { post, Problem } from "../api";
import { Difference } from "../diffview";
import { count, plain, pretty, plural } from "../format";
import { useAnswer, useTitle } from "../hooks";
import { Copy, Seal, sealState, Trouble } from "../parts";
import type { Finding } from "../types";
import { Found } from "./call";

interface Audit {
  verdict: string;
  summary: Record<string, any>;
  findings: Finding[];
}

interface Fated {
  item: string;
  says: string;
  visible: string;
  visible_how?: string;
  visible_why?: string;
  seals: { format: string; bytes: number; owner: string; did: string; did_why?: string; did_how?: string }[];
}

interface Looked {
  wire: string;
  provider: string;
  model: string;
  audit: Audit;
  repair: { verdict: string; mended: { rule: string; path: string; message: string; change: string }[]; request: string };
  translation?: { wire: string; provider: string; model: string; fates: Fated[]; warnings: { setting: string; message: string }[]; request: string };
}

/** A tool loop whose thinking was lost on the way, as it happens every day. */
const SAMPLE = {
  model: "claude-sonnet-4-5",
  max_tokens: 2048,
  thinking: { type: "enabled", budget_tokens: 1024 },
  tools: [{ name: "get_weather", description: "The weather of a city.", input_schema: { type: "object", properties: { city: { type: "string" } } } }],
  messages: [
    { role: "user", content: "Is it warmer in Rome or in Oslo?" },
    { role: "assistant", content: [{ type: "tool_use", id: "toolu_01", name: "get_weather", input: { city: "Rome" } }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_01", content: "24 °C" }] },
  ],
};

const VERDICTS: Record<string, [tone: string, sign: string, says: string]> = {
  accept: ["good", "✓", "It would be accepted"],
  degrade: ["warn", "!", "It would be accepted, and reasoning would be lost"],
  refuse: ["bad", "✗", "It would be refused"],
};

export function DoctorPage() {
  useTitle("Doctor");
  const rows = useAnswer<{ wires: string[]; providers: { name: string; wire: string }[] }>("/v1/throughline/doctor");
  const [request, setRequest] = useState("");
  const [provider, setProvider] = useState("");
  const [toProvider, setToProvider] = useState("");
  const [toModel, setToModel] = useState("");
  const [looked, setLooked] = useState<Looked | null>(null);
  const [asked, setAsked] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const look = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      setLooked(await post<Looked>("/v1/throughline/doctor", { request, provider, to_provider: toProvider, to_model: toModel }));
      setAsked(request);
    } catch (error) {
      setLooked(null);
      setProblem(error as Problem);
    }
    setBusy(false);
  };
  const names = rows.value?.providers ?? [];
  return (
    <>
      <header class="head">
        <div>
          <h1>Doctor</h1>
          <p class="lead">What would the provider say to this request, and what is the smallest change after which it is taken?</p>
        </div>
      </header>
      <form class="card doctor" onSubmit={look}>
        <label>
          Request
          <textarea class="mono" rows={12} value={request} required spellcheck={false} placeholder="Paste the body of a request to any provider" onInput={(event) => setRequest(event.currentTarget.value)} />
        </label>
        <div class="fields">
          <label>
            Goes to
            <select value={provider} onChange={(event) => setProvider(event.currentTarget.value)}>
              <option value="">Guess</option>
              {names.map((row) => (
                <option value={row.name}>{row.name}</option>
              ))}
            </select>
          </label>
          <label>
            Translate for
            <select value={toProvider} onChange={(event) => setToProvider(event.currentTarget.value)}>
              <option value="">Nobody</option>
              {names.map((row) => (
                <option value={row.name}>{row.name}</option>
              ))}
            </select>
          </label>
          <label>
            Model there
            <input type="text" value={toModel} placeholder="the same" onInput={(event) => setToModel(event.currentTarget.value)} />
          </label>
        </div>
        <div class="actions">
          <button class="primary" disabled={busy}>
            {busy ? "Looking…" : "Look at it"}
          </button>
          <button type="button" onClick={() => setRequest(JSON.stringify(SAMPLE, null, 2))}>
            Use an example
          </button>
        </div>
      </form>
      {problem ? <Trouble problem={problem} /> : null}
      <div role="status">{looked ? <Result looked={looked} asked={asked} /> : null}</div>
    </>
  );
}

const tidy = (text: string) => {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return plain(text);
  }
};

function Result({ looked, asked }: { looked: Looked; asked: string }) {
  const [tone, sign, says] = VERDICTS[looked.audit.verdict] ?? ["dim", "", looked.audit.verdict];
  const { repair, translation } = looked;
  return (
    <>
      <section class="card">
        <p class={`verdict ${tone}`}>
          <i aria-hidden="true">{sign}</i> {says}
        </p>
        <p class="dim">
          <bdi>{plain(looked.model)}</bdi> at {looked.provider} · {looked.wire} · {plural(looked.audit.findings.length, "finding")}
        </p>
        {looked.audit.findings.map((finding) => (
          <Found {...finding} about={{ provider_error: finding.provider_error, evidence: finding.evidence }} />
        ))}
      </section>
      <section class="card" aria-labelledby="repair">
        <h2 id="repair">Repair</h2>
        {repair.mended.length ? (
          <ul class="notes">
            {repair.mended.map((one) => (
              <li>
                <code>{one.rule}</code> <bdi>{plain(one.change)}</bdi> <span class="dim">at {plain(one.path)}</span>
              </li>
            ))}
          </ul>
        ) : null}
        <Difference before={tidy(asked)} after={tidy(repair.request)} same="Nothing has to change." />
        <div class="actions">
          <Copy text={repair.request} label="Copy the mended request" />
        </div>
      </section>
      {translation ? (
        <section class="card" aria-labelledby="translation">
          <h2 id="translation">
            For <bdi>{plain(translation.model)}</bdi> at {translation.provider}
          </h2>
          <div class="table">
            <table>
              <thead>
                <tr>
                  <th>Part</th>
                  <th>What became of it</th>
                  <th>Seals</th>
                </tr>
              </thead>
              <tbody>
                {translation.fates.map((fate) => (
                  <tr>
                    <td data-label="Part">
                      <bdi>{plain(fate.says)}</bdi>
                    </td>
                    <td data-label="What became of it">
                      {fate.visible}
                      {fate.visible_how || fate.visible_why ? `: ${fate.visible_how ?? fate.visible_why}` : ""}
                    </td>
                    <td data-label="Seals">
                      {fate.seals.length ? fate.seals.map((seal) => <Seal state={sealState(seal.did_why ? `${seal.did}: ${seal.did_why}` : seal.did)} why={seal.did_why} size={seal.bytes} />) : <span class="dim">none</span>}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {translation.warnings.length ? (
            <ul class="notes">
              {translation.warnings.map((one) => (
                <li>
                  <code>{plain(one.setting)}</code> {plain(one.message)}
                </li>
              ))}
            </ul>
          ) : null}
          <details class="body">
            <summary>The request, {count(translation.request.length)} bytes</summary>
            <Copy text={translation.request} />
            <pre tabIndex={0} role="region" aria-label="Translated request">
              {tidy(translation.request)}
            </pre>
          </details>
        </section>
      ) : null}
    </>
  );
}
