/** What the gateway restored in a call, why, and what the provider would have done without it. */

import { useEffect, useState } from "preact/hooks";
import { post } from "../api";
import { count, plain, plural } from "../format";
import { Table, type Column } from "../parts";
import type { Finding } from "../types";
import { FindingCard, type CallRecord, type PartFate } from "./call";

/** The evidence that identified a turn, by the words of a Fate. */
const EVIDENCE: [words: string, meaning: string][] = [
  ["by claim", "The client sent an id that the gateway issued for this turn."],
  ["by unique id", "The client sent an id of the provider that only this turn has."],
  ["by the visible conversation", "The client sent the same conversation, without the reasoning."],
];

const detail = (fate: PartFate) => [fate.visible, ...fate.seals].find((did) => did.startsWith("restored")) ?? "";
const evidence = (did: string) => EVIDENCE.find(([words]) => did.includes(words))?.[1] ?? "";

const COLUMNS: Column<PartFate>[] = [
  ["Item", (fate) => <code>{plain(fate.item)}</code>],
  ["Restored", (fate) => [fate.visible.startsWith("restored") ? "content" : "", fate.seals.some((did) => did.startsWith("restored")) ? "Seal" : ""].filter(Boolean).join(" and ")],
  ["Evidence", (fate) => <>{plain(detail(fate).replace(/^restored:? ?/, ""))} <small class="block dim">{evidence(detail(fate))}</small></>],
];

/** Maximum number of listed Items. */
const MAX_ITEMS = 20;

export function Restored({ record, restored }: { record: CallRecord; restored: PartFate[] }) {
  return (
    <section aria-labelledby="restored">
      <h2 id="restored">Restored</h2>
      <p>
        The client had dropped reasoning that the provider issued. The gateway restored {plural(restored.length, "Item")}, so the model received its own reasoning again.
      </p>
      <WithoutGateway record={record} />
      <Table rows={restored.slice(-MAX_ITEMS)} columns={COLUMNS} />
      {restored.length > MAX_ITEMS ? <p class="hint">And {count(restored.length - MAX_ITEMS)} earlier Items.</p> : null}
    </section>
  );
}

interface Diagnosis {
  audit: { verdict: string; findings: (Finding & { evidence?: Finding["evidence"] })[] };
}

/** Audits the request as the client sent it. A translated request has no counterpart to audit. */
function WithoutGateway({ record }: { record: CallRecord }) {
  const [found, setFound] = useState<Diagnosis | null>(null);
  const { received, sent, dialect } = record;
  const isSame = sent?.wire === dialect && received?.body !== undefined;
  useEffect(() => {
    if (!isSame) return;
    let isCurrent = true;
    const body = { request: received!.body, wire: sent!.wire, provider: sent!.provider, model: sent!.model };
    post<Diagnosis>("/v1/throughline/doctor", body).then((answer) => isCurrent && setFound(answer), () => {});
    return () => {
      isCurrent = false;
    };
  }, [record.id]);
  const refusal = found?.audit.findings.find((one) => one.severity === "refuse");
  if (!found) return null;
  if (!refusal) return <p class="hint">The audit expects the provider to accept the request without the reasoning. The model would have lost its reasoning.</p>;
  return (
    <div class="avoided" data-avoided={refusal.rule}>
      <p><strong>Rejection avoided.</strong> The audit expects the provider to reject the request as the client sent it:</p>
      <FindingCard {...refusal} fix="" about={refusal} />
    </div>
  );
}
