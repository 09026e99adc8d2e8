/** Shows the difference between two texts. */

import { useMemo, useState } from "preact/hooks";
import { diff, collapseUnchanged, type Piece } from "./diff";
import { count, plural } from "./format";

/** Number of lines that each step of "Show more lines" adds. */
const LINES_PER_STEP = 400;

interface Props {
  before: string;
  after: string;
  /** The text for equal texts. */
  same: string;
  /** Selects added lines that get the mark of restored content. */
  marks?: (line: string) => boolean;
}

export function Difference({ before, after, same, marks }: Props) {
  const [more, setMore] = useState(LINES_PER_STEP);
  const lines = useMemo(() => diff(before, after), [before, after]);
  const pieces = useMemo<Piece[]>(() => collapseUnchanged(lines), [lines]);
  const added = lines.filter((line) => line.sign === "+").length;
  const removed = lines.filter((line) => line.sign === "-").length;
  if (!added && !removed) return <p class="same">{same}</p>;
  return (
    <div class="difference">
      <p class="counts">
        <span class="plus">+{count(added)}</span> <span class="minus">−{count(removed)}</span> lines
      </p>
      <pre tabIndex={0} role="region" aria-label="Changed lines">
        {pieces.slice(0, more).map((piece) =>
          "skipped" in piece ? (
            <div class="skipped">{plural(piece.skipped, "line")} unchanged</div>
          ) : (
            <div class={piece.sign === "+" ? (marks?.(piece.text) ? "plus restored" : "plus") : piece.sign === "-" ? "minus" : ""}>
              <i title={piece.sign === "+" && marks?.(piece.text) ? "restored" : undefined}>{piece.sign === "+" && marks?.(piece.text) ? "↺" : piece.sign}</i>
              {piece.text.length > 2000 ? `${piece.text.slice(0, 2000)}…` : piece.text}
            </div>
          ),
        )}
      </pre>
      {pieces.length > more ? <button onClick={() => setMore(more + LINES_PER_STEP)}>Show more lines</button> : null}
    </div>
  );
}
