/** The thought map: over the whole thread, which model thought what, and in which calls each seal went back or was left out. */

import { bytes, clock, count, plain, plural } from "../format";
import { to, useAnswer, useTitle } from "../hooks";
import { Empty, Id, Loading, Seal, sealState, Trouble, type SealState } from "../parts";
import type { MapCall, MapItem, ThoughtMap } from "../types";

const LANE = 42;
const ROW = 24;
const LEFT = 190;
const TOP = 30;

export function MapPage({ thread }: { thread: string }) {
  useTitle("Thought map");
  const { value, problem, again } = useAnswer<ThoughtMap>(`/v1/throughline/threads/${encodeURIComponent(thread)}/map`, 4000);
  return (
    <>
      <header class="head">
        <div>
          <p class="crumbs">
            <a href={to("threads")}>Threads</a>
            <a href={to("thread", thread)}>Thread</a>
            <Id id={thread} />
          </p>
          <h1>Thought map</h1>
        </div>
      </header>
      {problem && !value ? <Trouble problem={problem} again={again} /> : null}
      {!value && !problem ? <Loading /> : null}
      {value && !value.calls.length ? <Empty title="No model was asked on this thread yet" /> : null}
      {value?.calls.length ? <Picture map={value} /> : null}
    </>
  );
}

const WORDS: Record<SealState, string> = {
  sealed: "not sent back yet",
  intact: "went back exactly",
  restored: "put back for the client",
  reshaped: "said in another shape",
  foreign: "left out: another provider's",
  elided: "left out",
  forgotten: "no more",
  open: "not sealed",
};

function Picture({ map }: { map: ThoughtMap }) {
  const { items, calls } = map;
  // Few calls have much room, and many share it.
  const step = Math.max(22, Math.min(44, Math.floor(720 / calls.length)));
  // Agents know models by their routes, origins by their own names: the lane is the model that was asked.
  const givenBy = new Map<number, number>();
  calls.forEach((call, column) => call.gave.forEach((place) => givenBy.set(place, column)));
  const models = [...new Set(calls.map((call) => call.model))];
  const cells: { column: number; row: number; did: string }[] = [];
  const tally = new Map<SealState, number>();
  const shownRows = items.map((_, place) => place).filter((place) => givenBy.has(place));
  const rowOf = new Map(shownRows.map((place, row) => [place, row]));
  calls.forEach((call, column) => {
    for (const [from, number, did] of call.spans) {
      for (let place = from; place < from + number; place++) {
        const row = rowOf.get(place);
        const state = sealState(did);
        tally.set(state, (tally.get(state) ?? 0) + 1);
        if (row !== undefined) cells.push({ column, row, did });
      }
    }
  });
  const lanes = TOP + models.length * LANE;
  const matrix = lanes + 34;
  const width = LEFT + calls.length * step + 30;
  const height = matrix + shownRows.length * ROW + 16;
  const x = (column: number) => LEFT + column * step + step / 2;
  const y = (model: string) => TOP + models.indexOf(model) * LANE + LANE / 2;
  const path = calls.map((call, column) => `${column ? "L" : "M"}${x(column)} ${y(call.model)}`).join("");
  const summary = [...tally].map(([state, times]) => `${times} times ${WORDS[state]}`).join(", ");
  return (
    <>
      <p class="legend">
        {(["intact", "restored", "reshaped", "foreign", "elided"] as SealState[]).map((state) => (
          <span>
            <Seal state={state} /> <small>{count(tally.get(state) ?? 0)}</small>
          </span>
        ))}
        {map.forgotten ? <span class="dim">{plural(map.forgotten, "item")} forgotten</span> : null}
      </p>
      <div class="map" tabIndex={0} role="region" aria-label="Thought map, which can be scrolled">
        <svg width={width} height={height} role="group" aria-label={`${plural(calls.length, "call")} of ${plural(models.length, "model")}, ${plural(items.length, "thought or sealed part")}. ${summary}.`}>
          {models.map((model) => (
            <g>
              <line class="lane" x1={LEFT} x2={width - 12} y1={y(model)} y2={y(model)} />
              <text x={LEFT - 14} y={y(model) + 4} text-anchor="end">
                {short(plain(model.slice(model.indexOf("/") + 1)))}
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
          {shownRows.length ? (
            <text class="tick" x={LEFT - 14} y={matrix - 12} text-anchor="end">
              thoughts and seals
            </text>
          ) : null}
          {shownRows.map((place, row) => {
            const item = items[place]!;
            const given = givenBy.get(place)!;
            const middle = matrix + row * ROW + ROW / 2;
            return (
              <g class="item">
                <text x={LEFT - 14} y={middle + 4} text-anchor="end">
                  {label(item)}
                  <title>{plain(item.text) || "sealed by its provider"}</title>
                </text>
                <line x1={x(given)} x2={width - 18} y1={middle} y2={middle} />
                <circle class="born" cx={x(given)} cy={middle} r="4.5">
                  <title>{`had by ${plain(calls[given]!.model)} at ${calls[given]!.turn}`}</title>
                </circle>
              </g>
            );
          })}
          {cells.map(({ column, row, did }) => (
            <Cell x={x(column)} y={matrix + row * ROW + ROW / 2} did={did} />
          ))}
        </svg>
      </div>
      <details class="body">
        <summary>The same as a table</summary>
        <div class="table">
          <table>
            <thead>
              <tr>
                <th>Call</th>
                <th>Model</th>
                <th class="number">Had</th>
                <th>What went back</th>
                <th class="number">At</th>
              </tr>
            </thead>
            <tbody>
              {calls.map((call) => (
                <tr>
                  <td data-label="Call">{call.run ? <a href={to("run", call.run)}>Turn {call.turn}</a> : <a href={to("call", call.id)}>Call {call.turn}</a>}</td>
                  <td data-label="Model">{plain(call.model)}</td>
                  <td data-label="Had" class="number">
                    {call.gave.length}
                  </td>
                  <td data-label="What went back">{call.spans.length ? call.spans.map(([, number, did]) => `${number} ${plain(did)}`).join("; ") : "nothing yet"}</td>
                  <td data-label="At" class="number dim">
                    {clock(call.at)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}

function label(item: MapItem): string {
  const what = item.kind === "call" ? `call ${short(plain(item.text), 10)}` : item.kind;
  return `${what}${item.bytes ? ` ${bytes(item.bytes)}` : ""}`;
}

const short = (text: string, most = 22) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function Node({ call, x, y, items }: { call: MapCall; x: number; y: number; items: MapItem[] }) {
  const thoughts = call.gave.filter((place) => items[place]?.kind !== "call").length;
  return (
    <a href={call.run ? to("run", call.run) : to("call", call.id)} aria-label={`${call.run ? "Turn" : "Call"} ${call.turn} of ${plain(call.model)}, ${plural(thoughts, "thought")}`}>
      <circle class={call.purpose && call.purpose !== "turn" ? "node aside" : "node"} cx={x} cy={y} r={5 + Math.min(3, thoughts)}>
        <title>{`${plain(call.model)}, turn ${call.turn}: ${plural(thoughts, "thought")}`}</title>
      </circle>
    </a>
  );
}

function Cell({ x, y, did }: { x: number; y: number; did: string }) {
  const state = sealState(did);
  const half = 7;
  return (
    <g class={`cell ${state}`}>
      <title>{plain(did)}</title>
      <rect x={x - half} y={y - half} width={2 * half} height={2 * half} rx="3" />
      {state === "elided" || state === "forgotten" ? <path d={`M${x - 3} ${y - 3}l6 6m0-6l-6 6`} /> : null}
      {state === "restored" ? <circle cx={x} cy={y} r="2.4" /> : null}
    </g>
  );
}
