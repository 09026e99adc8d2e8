/** A difference, as people read it. */

import { useMemo, useState } from "preact/hooks";
import { diff, folded, type Piece } from "./diff";
import { count, plural } from "./format";

/** The most lines that are drawn at once. */
const MOST = 400;

export function Difference({ before, after, same }: { before: string; after: string; same: string }) {
  const [more, setMore] = useState(MOST);
  const lines = useMemo(() => diff(before, after), [before, after]);
  const pieces = useMemo<Piece[]>(() => folded(lines), [lines]);
  const added = lines.filter((line) => line.sign === "+").length;
  const removed = lines.filter((line) => line.sign === "-").length;
  if (!added && !removed) return <p class="same">{same}</p>;
  return (
    <div class="difference">
      <p class="counts">
        <span class="plus">+{count(added)}</span> <span class="minus">−{count(removed)}</span> lines
      </p>
      <pre tabIndex={0} role="region" aria-label="Lines that differ">
        {pieces.slice(0, more).map((piece) =>
          "skipped" in piece ? (
            <div class="skipped">{plural(piece.skipped, "line")} the same</div>
          ) : (
            <div class={piece.sign === "+" ? "plus" : piece.sign === "-" ? "minus" : ""}>
              <i>{piece.sign}</i>
              {piece.text.length > 2000 ? `${piece.text.slice(0, 2000)}…` : piece.text}
            </div>
          ),
        )}
      </pre>
      {pieces.length > more ? <button onClick={() => setMore(more + MOST)}>Show more lines</button> : null}
    </div>
  );
}
