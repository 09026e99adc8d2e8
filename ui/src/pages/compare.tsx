/** Compares two runs: their counts, and what each did turn by turn. */

import { useMemo, useState } from "preact/hooks";
import type { Row, Timeline } from "../fold";
import { compact, count, dollars, duration, line, plain } from "../format";
import { to, useFetch, useNow, useTitle } from "../hooks";
import { Empty, FetchStatus, Id, Loading, LongText, PageHead, RelativeTime, Status, Table, type Column } from "../parts";
import { useTimeline } from "../timeline";
import type { RunHead, RunRow } from "../types";
import { elapsed } from "./runs";

/** Number of turns that the page shows first. */
const FIRST_TURNS = 40;

export function ComparePage({ first, second }: { first: string; second: string }) {
  useTitle("Compare runs");
  if (!first || !second) return <Choose first={first} />;
  return <Comparison first={first} second={second} />;
}

/** Lists the runs that a run can be compared with. */
function Choose({ first }: { first: string }) {
  const [search, setSearch] = useState("");
  const state = useFetch<{ runs: RunRow[] }>(`/v1/throughline/runs?${new URLSearchParams({ limit: "50", ...(search ? { search } : {}) })}`);
  const runs = state.value?.runs.filter(({ id }) => id !== first) ?? [];
  const link = (run: RunRow) => (first ? to("compare", first, run.id) : to("compare", run.id));
  const columns: Column<RunRow>[] = [
    ["Run", (run) => <><a href={link(run)}><bdi>{plain(run.title ?? "Untitled run")}</bdi></a><Id id={run.id} isInList /></>, "title"],
    ["Status", (run) => <Status status={run.interrupted ? "interrupted" : run.status} />],
    ["Turns", (run) => compact(run.turns), "number"],
    ["Cost", (run) => dollars(run.cost_usd), "number"],
    ["Updated", (run) => <RelativeTime at={run.updated} />, "number dim"],
  ];
  return (
    <>
      <PageHead title="Compare runs" crumbs={[["Runs", "runs"], ...(first ? [["First run", "run", first] as [string, string, string]] : [])]} lead={first ? "Choose the run to compare with." : "Choose the first run."}>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label="Search runs" placeholder="Search titles, ids, models" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </form>
      </PageHead>
      <FetchStatus state={state} />
      {state.value && !runs.length ? <Empty title="No other runs">Start another run, or change the search.</Empty> : null}
      {runs.length ? <Table rows={runs} columns={columns} id={(run) => run.id} label="Runs" /> : null}
    </>
  );
}

/** One row of the table of counts: the name, both values, and the numbers to subtract. */
interface CountRow {
  name: string;
  shown: [string, string];
  numbers?: [number, number];
  show?: (value: number) => string;
}

function Comparison({ first, second }: { first: string; second: string }) {
  const head = (run: string) => `/v1/throughline/runs/${encodeURIComponent(run)}`;
  const heads = [useFetch<RunHead>(head(first), 5000), useFetch<RunHead>(head(second), 5000)] as const;
  const sides = [useTimeline(first), useTimeline(second)] as const;
  const [shown, setShown] = useState(FIRST_TURNS);
  const now = useNow(5000);
  const turns = useMemo(() => [turnsOf(sides[0].view.rows), turnsOf(sides[1].view.rows)] as const, [sides[0].version, sides[1].version]);
  const failed = heads.find((state) => state.problem && !state.value);
  if (failed) return <FetchStatus state={failed} />;
  const [one, other] = [heads[0].value, heads[1].value];
  if (!one || !other) return <Loading />;
  const both = <T,>(value: (head: RunHead, view: Timeline) => T): [T, T] => [value(one, sides[0].view), value(other, sides[1].view)];
  const number = (name: string, value: (head: RunHead, view: Timeline) => number, show: (value: number) => string = count): CountRow => {
    const numbers = both(value);
    return { name, numbers, show, shown: [show(numbers[0]), show(numbers[1])] };
  };
  const rows: CountRow[] = [
    { name: "Status", shown: both((head) => (head.interrupted ? "interrupted" : head.status)) },
    { name: "Models", shown: both((head, view) => (view.models.length ? view.models : [head.model ?? "–"]).join(", ")) },
    number("Turns", (head) => head.turns ?? 0),
    number("Discarded attempts", (head) => head.discarded ?? 0),
    number("Tool calls", (head) => head.tools ?? 0),
    number("Input tokens", (head) => head.tokens?.inputTokens ?? 0, compact),
    number("Output tokens", (head) => head.tokens?.outputTokens ?? 0, compact),
    number("Cost", (head) => head.cost_usd ?? 0, dollars),
    number("Duration", (head) => elapsed(head, now), duration),
    number("Thoughts kept", (head) => head.thoughts?.kept ?? 0),
    number("Thoughts restored", (head) => head.thoughts?.restored ?? 0),
    number("Thoughts elided", (head) => head.thoughts?.elided ?? 0),
  ];
  const columns: Column<CountRow>[] = [
    ["Value", ({ name }) => name, "title"],
    ["First run", ({ shown }) => <bdi>{plain(shown[0])}</bdi>, "number"],
    ["Second run", ({ shown }) => <bdi>{plain(shown[1])}</bdi>, "number"],
    ["Difference", (row) => <Delta row={row} />, "number"],
  ];
  const length = Math.max(turns[0].length, turns[1].length);
  const differs = Array.from({ length }, (_, index) => turns[0][index]?.digest !== turns[1][index]?.digest);
  const at = differs.indexOf(true);
  return (
    <>
      <PageHead title="Compare runs" crumbs={[["Runs", "runs"], ["First run", "run", first], ["Second run", "run", second]]}>
        <div class="actions">
          <a class="button" href={to("compare", second, first)}>Swap</a>
          <a class="button" href={to("compare", first)}>Choose another run</a>
        </div>
      </PageHead>
      <div class="tight"><Table rows={rows} columns={columns} id={(row) => row.name} label="Counts of both runs" /></div>
      <section aria-labelledby="turns">
        <h2 id="turns">Turn by turn</h2>
        <p class="dim" data-first-difference={at}>{at < 0 ? "Both runs did the same." : at === 0 ? "The runs differ from the start." : `The runs are equal before ${turns[0][at]?.name ?? turns[1][at]?.name}.`}</p>
        <ol class="compare">
          {Array.from({ length: Math.min(length, shown) }, (_, index) => (
            <li class={differs[index] ? "differs" : undefined}>
              <h3>{turns[0][index]?.name ?? turns[1][index]?.name}{differs[index] ? <span class="tag warn">different</span> : <span class="tag">equal</span>}</h3>
              <div>
                {[turns[0][index], turns[1][index]].map((turn) => <TurnCell turn={turn} />)}
              </div>
            </li>
          ))}
        </ol>
        {length > shown ? <button onClick={() => setShown(shown + FIRST_TURNS)}>Show more turns</button> : null}
      </section>
    </>
  );
}

function Delta({ row: { numbers, show, shown } }: { row: CountRow }) {
  if (!numbers || !show) return <span class="dim">{shown[0] === shown[1] ? "same" : "different"}</span>;
  const difference = numbers[1] - numbers[0];
  if (!difference) return <span class="dim">0</span>;
  return <>{difference > 0 ? "+" : "−"}{show(Math.abs(difference))}</>;
}

interface ComparedTurn {
  name: string;
  /** The visible content, by which turns are compared. */
  digest: string;
  parts: [label: string, text: string][];
}

/** Groups the rows of a timeline by turn. Discarded content is left out. */
function turnsOf(rows: Row[]): ComparedTurn[] {
  const turns: ComparedTurn[] = [{ name: "Start", digest: "", parts: [] }];
  for (const row of rows) {
    if (row.kind === "turn" && (!row.purpose || row.purpose === "turn") && row.attempt === 1) turns.push({ name: `Turn ${row.turn}`, digest: "", parts: [] });
    const last = turns[turns.length - 1]!;
    const add = (label: string, text: string) => last.parts.push([label, text]);
    if (row.kind === "thought" && !row.discarded) add("Thought", row.text || "sealed by the provider");
    else if (row.kind === "message" && !row.discarded) add(row.role === "user" ? "User" : row.final ? "Final answer" : "Assistant", row.text);
    else if (row.kind === "tool") add(`Tool ${row.name}`, [line(row.args ?? ""), row.error ?? (row.result === undefined ? row.phase : line(row.result))].join("\n"));
    else if (row.kind === "question") add("Question", row.questions.map(({ question }) => question).join("\n"));
    else if (row.kind === "note" && row.tone) add(row.name, row.text);
  }
  for (const turn of turns) turn.digest = JSON.stringify(turn.parts);
  return turns.filter((turn) => turn.parts.length);
}

function TurnCell({ turn }: { turn?: ComparedTurn }) {
  if (!turn) return <div class="dim">No such turn.</div>;
  return (
    <div>
      {turn.parts.map(([label, text]) => (
        <div class="part">
          <span class="label">{plain(label)}</span>
          <LongText text={text} limit={500} />
        </div>
      ))}
    </div>
  );
}
