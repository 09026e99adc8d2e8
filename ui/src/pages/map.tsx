/** The Thought map: which model returned which Thought, and in which calls each Seal was sent. */

import { bytes, clock, count, plain, plural, shortId } from "../format";
import { to, useFetch, useTitle } from "../hooks";
import { Empty, FetchStatus, Id, PageHead, sealState, Table, type Column, type SealState } from "../parts";
import type { MapCall, MapItem, MapRun, ThoughtMap, ThreadRow } from "../types";

const LANE = 46;
const ROW = 30;
/** Width of the labels on wide and narrow screens, in pixels. */
const LEFT = { wide: 316, narrow: 176 };
const TOP = 34;
/** Width of the menu on wide screens, in pixels. */
const MENU = 212;
/** Half the side length of a mark, in pixels. */
const HALF = 8;

export function MapPage({ thread }: { thread: string }) {
  const path = `/v1/throughline/threads/${encodeURIComponent(thread)}`;
  const map = useFetch<ThoughtMap>(`${path}/map`, 4000);
  const { value } = map;
  const about = useFetch<ThreadRow>(path);
  const title = about.value?.title ?? (about.value?.gone ? "Erased Thread" : "Untitled Thread");
  useTitle(`Thought map of ${plain(title)}`);
  return (
    <>
      <PageHead
        title={title}
        crumbs={[["Threads", "threads"], ["Thread", "thread", thread], ["Thought map"]]}
        id={<Id id={thread} />}
        lead="Shows which model returned each Thought, and which later calls sent each Thought and Seal back to the provider."
      />
      {value ? null : <FetchStatus state={map} />}
      {value && !value.calls.length ? <Empty title={about.value?.gone ? "The content of this Thread was erased" : "No model calls in this Thread yet"} /> : null}
      {value?.calls.length ? <Picture map={value} /> : null}
    </>
  );
}

const STATE_LABELS: Record<SealState, string> = {
  sealed: "not sent back yet",
  intact: "sent back unchanged",
  restored: "restored for the client",
  reshaped: "sent in another format",
  foreign: "left out: issued by another provider",
  elided: "left out for another reason",
  forgotten: "erased",
  open: "not sealed",
};

function Picture({ map }: { map: ThoughtMap }) {
  const { items, calls } = map;
  const isNarrow = innerWidth <= 820;
  const left = isNarrow ? LEFT.narrow : LEFT.wide;
  const most = isNarrow ? 17 : 36;
  // Columns get narrower as the number of calls grows.
  const room = isNarrow ? innerWidth - left - 70 : Math.max(640, innerWidth - MENU - left - 130);
  const step = Math.max(22, Math.min(150, Math.floor(room / calls.length)));
  // Agents request models by route, but Origins contain the model's own name. A lane is a requested
  // model.
  const returnedBy = new Map<number, number>();
  calls.forEach((call, column) => call.returned.forEach((index) => returnedBy.set(index, column)));
  const models = [...new Set(calls.map((call) => call.model))];
  const cells: { column: number; row: number; did: string }[] = [];
  const tally = new Map<SealState, number>();
  // One row for each item that a shown call returned or sent, so the legend counts the drawn cells.
  const sentTo = new Set(calls.flatMap((call) => call.spans.flatMap(([from, number]) => Array.from({ length: number }, (_, step) => from + step))));
  const visibleRows = items.map((_, index) => index).filter((index) => returnedBy.has(index) || sentTo.has(index));
  const rowOf = new Map(visibleRows.map((index, row) => [index, row]));
  calls.forEach((call, column) => {
    for (const [from, number, did] of call.spans) {
      for (let index = from; index < from + number; index++) {
        const row = rowOf.get(index);
        if (row === undefined) continue;
        const state = sealState(did);
        tally.set(state, (tally.get(state) ?? 0) + 1);
        cells.push({ column, row, did });
      }
    }
  });
  const lanes = TOP + models.length * LANE;
  const matrix = lanes + 34;
  const width = left + calls.length * step + 30;
  const height = matrix + visibleRows.length * ROW + 16;
  const x = (column: number) => left + column * step + step / 2;
  const y = (model: string) => TOP + models.indexOf(model) * LANE + LANE / 2;
  const path = calls.map((call, column) => `${column ? "L" : "M"}${x(column)} ${y(call.model)}`).join("");
  const summary = [...tally].map(([state, times]) => `${times} ${STATE_LABELS[state]}`).join(", ");
  return (
    <>
      <p class="legend">
        <span>
          <svg width="18" height="18" aria-hidden="true" class="mark">
            <circle class="born" cx="9" cy="9" r="5" />
          </svg>
          new
        </span>
        {(["intact", "restored", "reshaped", "foreign", "elided", "forgotten"] as SealState[]).map((state) =>
          // The legend always lists the common states, even if this map has none.
          tally.get(state) || !/reshaped|forgotten/.test(state) ? (
            <span>
              <svg width="18" height="18" aria-hidden="true" class="mark">
                <Mark x={9} y={9} state={state} />
              </svg>
              {STATE_LABELS[state]} <small data-legend={state}>{count(tally.get(state) ?? 0)}</small>
            </span>
          ) : null,
        )}
        {map.forgotten ? <span class="dim">{plural(map.forgotten, "Item")} erased</span> : null}
      </p>
      <div class="map" tabIndex={0} role="region" aria-label="Thought map (scrollable)">
        <svg width={width} height={height} role="group" aria-label={`${plural(calls.length, "call")} to ${plural(models.length, "model")}, ${plural(items.length, "Item")} (Thoughts and sealed parts). ${summary}.`}>
          {models.map((model) => (
            <g>
              <line class="lane" x1={left} x2={width - 12} y1={y(model)} y2={y(model)} />
              <text class="name" x={8} y={y(model) + 4}>
                {short(plain(model.slice(model.indexOf("/") + 1)), isNarrow ? 22 : 40)}
              </text>
            </g>
          ))}
          <path class="thread" d={path} />
          {calls.map((call, column) => (
            <Node call={call} x={x(column)} y={y(call.model)} items={items} />
          ))}
          {calls.map((_, column) => (calls.length <= 40 || column % 5 === 4 ? (
            <text class="tick" x={x(column)} y={TOP - 12} text-anchor="middle">
              {column + 1}
            </text>
          ) : null))}
          {visibleRows.length ? (
            <text class="tick" x={8} y={matrix - 12}>
              Thoughts and sealed parts
            </text>
          ) : null}
          {visibleRows.map((index, row) => {
            const item = items[index]!;
            const origin = returnedBy.get(index);
            const middle = matrix + row * ROW + ROW / 2;
            return (
              <g class="item">
                <text x={8} y={middle + 4}>
                  {itemLabel(item, most)}
                  <title>{plain(item.text) || "sealed by the provider"}</title>
                </text>
                <text class="tick" x={left - 14} y={middle + 4} text-anchor="end">
                  {item.bytes ? bytes(item.bytes) : ""}
                </text>
                <line x1={origin === undefined ? left : x(origin)} x2={width - 18} y1={middle} y2={middle} />
                {origin === undefined ? null : (
                  <circle class="born" cx={x(origin)} cy={middle} r="5">
                    <title>{`returned by ${plain(calls[origin]!.model)} at ${calls[origin]!.turn}`}</title>
                  </circle>
                )}
              </g>
            );
          })}
          {cells.map(({ column, row, did }) => (
            <Cell x={x(column)} y={matrix + row * ROW + ROW / 2} did={did} />
          ))}
        </svg>
      </div>
      {map.runs.length ? <Table label="Thoughts by run" rows={map.runs} columns={RUN_COLUMNS} attributes={({ id }) => ({ "data-run": id })} /> : null}
      <details class="body">
        <summary>Show as a table</summary>
        <Table rows={calls} columns={CALL_COLUMNS} />
      </details>
    </>
  );
}

/** Formats "Turn 2" or "Call 2", with the number of the attempt from the second attempt on. */
const turnOf = (call: MapCall) => `${call.run ? "Turn" : "Call"} ${call.turn}${call.attempt > 1 ? `, attempt ${call.attempt}` : ""}`;

const CALL_COLUMNS: Column<MapCall>[] = [
  ["Call", (call) => (call.run ? <a href={to("run", call.run)}>{turnOf(call)}</a> : <a href={to("call", call.id)}>Call {call.turn}</a>)],
  ["Model", (call) => plain(call.model)],
  ["New Thoughts", (call) => call.returned.length, "number"],
  ["Sent back", ({ spans, discarded }) => `${spans.map(([, number, did]) => `${number} ${plain(did)}`).join("; ") || "nothing yet"}${discarded ? "; the answer was discarded" : ""}`],
  ["Time", (call) => clock(call.at), "number dim"],
];

/** A column with a count per run. The counts equal those of the run's timeline and trace. */
const countColumn = (title: string, hook: string, value: (run: MapRun) => number): Column<MapRun> => [title, (run) => <span data-count={hook}>{count(value(run))}</span>, "number"];

const RUN_COLUMNS: Column<MapRun>[] = [
  ["Run", ({ id }) => <a href={to("run", id)}><code title={plain(id)}>{plain(shortId(id))}</code></a>],
  countColumn("Turns", "turns", (run) => run.turns),
  ["Attempts", ({ attempts, discarded }) => <><span data-count="attempts">{count(attempts)}</span>{discarded ? <small> {count(discarded)} discarded</small> : null}</>, "number"],
  countColumn("Thoughts", "received", (run) => run.thoughts.received),
  countColumn("Kept", "kept", (run) => run.thoughts.kept),
  countColumn("Restored", "restored", (run) => run.thoughts.restored),
  countColumn("Elided", "elided", (run) => run.thoughts.elided),
];

/** Labels an Item with the start of its text, or with its kind if it has no text. */
function itemLabel(item: MapItem, most: number): string {
  const text = plain(item.text).replace(/\s+/g, " ");
  if (item.kind === "call") return short(`call of ${text}`, most);
  return short(text || `${item.kind}, sealed by the provider`, most);
}

const short = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function Node({ call, x, y, items }: { call: MapCall; x: number; y: number; items: MapItem[] }) {
  const thoughts = call.returned.filter((index) => items[index]?.kind !== "call").length;
  return (
    <a href={call.run ? to("run", call.run) : to("call", call.id)} aria-label={`${turnOf(call)} of ${plain(call.model)}, ${call.discarded ? "discarded" : plural(thoughts, "Thought")}`}>
      <circle class={call.discarded ? "node discarded" : call.purpose && call.purpose !== "turn" ? "node aside" : "node"} data-turn={call.turn} data-attempt={call.attempt} cx={x} cy={y} r={6 + Math.min(3, thoughts)}>
        <title>{`${plain(call.model)}, ${turnOf(call).toLowerCase()}: ${call.discarded ? "the answer was discarded" : plural(thoughts, "Thought")}`}</title>
      </circle>
    </a>
  );
}

function Cell({ x, y, did }: { x: number; y: number; did: string }) {
  return (
    <g data-cell={sealState(did)}>
      <title>{plain(did)}</title>
      <Mark x={x} y={y} state={sealState(did)} />
    </g>
  );
}

/** Draws the mark of a Fate: a filled square if the Thought was sent, else an empty square. */
function Mark({ x, y, state }: { x: number; y: number; state: SealState }) {
  return (
    <g class={`cell ${state}`}>
      <rect x={x - HALF} y={y - HALF} width={2 * HALF} height={2 * HALF} rx="3.5" />
      {state === "elided" || state === "forgotten" ? <path d={`M${x - 3} ${y - 3}l6 6m0-6l-6 6`} /> : null}
      {state === "restored" ? <circle cx={x} cy={y} r="2.8" /> : null}
    </g>
  );
}
