/** The doctor: audit, repair and translation of a pasted request. */

import { useState } from "preact/hooks";
import { post, ApiError } from "../api";
import { Difference } from "../diffview";
import { count, plain, pretty, plural } from "../format";
import { useFetch, useTitle } from "../hooks";
import { Choice, Copy, ErrorBox, PageHead, Seal, sealState, Table, type Column } from "../parts";
import type { Finding } from "../types";
import { FindingCard } from "./call";

interface TranslatedPart {
  description: string;
  visible: string;
  visible_how?: string;
  visible_why?: string;
  seals: { bytes: number; did: string; did_why?: string }[];
}

interface DoctorReport {
  wire: string;
  provider: string;
  model: string;
  audit: { verdict: string; findings: Finding[] };
  repair: { repaired: { rule: string; path: string; change: string }[]; request: string };
  translation?: { provider: string; model: string; fates: TranslatedPart[]; warnings: { setting: string; message: string }[]; request: string };
}

/** A tool loop without its thinking block, a common failure. */
const SAMPLE = {
  model: "claude-sonnet-4-6",
  max_tokens: 2048,
  thinking: { type: "enabled", budget_tokens: 1024 },
  tools: [{ name: "get_weather", description: "Returns the weather in a city.", input_schema: { type: "object", properties: { city: { type: "string" } } } }],
  messages: [
    { role: "user", content: "Is it warmer in Rome or in Oslo?" },
    { role: "assistant", content: [{ type: "tool_use", id: "toolu_01", name: "get_weather", input: { city: "Rome" } }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_01", content: "24 °C" }] },
  ],
};

const VERDICTS: Record<string, [tone: string, sign: string, label: string]> = {
  accept: ["good", "✓", "The provider would accept this request"],
  degrade: ["warn", "!", "The provider would accept this request, but reasoning would be lost"],
  refuse: ["bad", "✗", "The provider would reject this request"],
};

export function DoctorPage() {
  useTitle("Doctor");
  const rows = useFetch<{ providers: { name: string }[] }>("/v1/throughline/doctor");
  const [request, setRequest] = useState("");
  const [provider, setProvider] = useState("");
  const [toProvider, setToProvider] = useState("");
  const [toModel, setToModel] = useState("");
  const [report, setReport] = useState<DoctorReport | null>(null);
  const [submitted, setSubmitted] = useState("");
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      setReport(await post<DoctorReport>("/v1/throughline/doctor", { request, provider, to_provider: toProvider, to_model: toModel }));
      setSubmitted(request);
    } catch (error) {
      setReport(null);
      setProblem(error as ApiError);
    }
    setBusy(false);
  };
  const names = rows.value?.providers.map((row) => row.name) ?? [];
  return (
    <>
      <PageHead title="Doctor" lead="Predict how the provider responds to a request, and find the smallest change that makes the request valid." />
      <form class="card doctor" onSubmit={submit}>
        <label>
          Request
          <textarea class="mono" rows={12} value={request} required spellcheck={false} placeholder="Paste a request body for any provider" onInput={(event) => setRequest(event.currentTarget.value)} />
        </label>
        <div class="fields">
          <label>
            Provider
            <Choice none="Detect" all={names} value={provider} set={setProvider} />
          </label>
          <label>
            Translate to
            <Choice none="No translation" all={names} value={toProvider} set={setToProvider} />
          </label>
          <label>
            Target model
            <input type="text" value={toModel} placeholder="same model" onInput={(event) => setToModel(event.currentTarget.value)} />
          </label>
        </div>
        <div class="actions">
          <button class="primary" disabled={busy}>{busy ? "Auditing…" : "Audit request"}</button>
          <button type="button" onClick={() => setRequest(JSON.stringify(SAMPLE, null, 2))}>Use an example</button>
        </div>
      </form>
      {problem ? <ErrorBox problem={problem} /> : null}
      <div role="status">{report ? <Result report={report} submitted={submitted} /> : null}</div>
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

const TranslatedSeal = ({ did, did_why, bytes }: TranslatedPart["seals"][number]) => <Seal state={sealState(did_why ? `${did}: ${did_why}` : did)} why={did_why} size={bytes} />;

const FATE_COLUMNS: Column<TranslatedPart>[] = [
  ["Part", (part) => <bdi>{plain(part.description)}</bdi>],
  ["Fate", ({ visible, visible_how, visible_why }) => [visible, visible_how ?? visible_why].filter(Boolean).join(": ")],
  ["Seals", ({ seals }) => (seals.length ? seals.map((seal) => <TranslatedSeal {...seal} />) : <span class="dim">none</span>)],
];

function Result({ report, submitted }: { report: DoctorReport; submitted: string }) {
  const [tone, sign, label] = VERDICTS[report.audit.verdict] ?? ["dim", "", report.audit.verdict];
  const { repair, translation } = report;
  return (
    <>
      <section class="card">
        <p class={`verdict ${tone}`}>
          <i aria-hidden="true">{sign}</i> {label}
        </p>
        <p class="dim">
          <bdi>{plain(report.model)}</bdi> at {report.provider} · {report.wire} · {plural(report.audit.findings.length, "finding")}
        </p>
        {report.audit.findings.map((finding) => (
          <FindingCard {...finding} about={finding} />
        ))}
      </section>
      <section class="card" aria-labelledby="repair">
        <h2 id="repair">Repair</h2>
        {repair.repaired.length ? (
          <ul class="notes">
            {repair.repaired.map((one) => (
              <li><code>{one.rule}</code> <bdi>{plain(one.change)}</bdi> <span class="dim">at {plain(one.path)}</span></li>
            ))}
          </ul>
        ) : null}
        <Difference before={tidy(submitted)} after={tidy(repair.request)} same="No change is needed." />
        <div class="actions">
          <Copy text={repair.request} label="Copy repaired request" />
        </div>
      </section>
      {translation ? (
        <section class="card" aria-labelledby="translation">
          <h2 id="translation">
            For <bdi>{plain(translation.model)}</bdi> at {translation.provider}
          </h2>
          <Table rows={translation.fates} columns={FATE_COLUMNS} />
          {translation.warnings.length ? (
            <ul class="notes">
              {translation.warnings.map((one) => (
                <li><code>{plain(one.setting)}</code> {plain(one.message)}</li>
              ))}
            </ul>
          ) : null}
          <details class="body">
            <summary>Translated request, {count(translation.request.length)} bytes</summary>
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
