/** Draws only the rows of a long table that are near the visible part of the page. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Number of rows up to which all rows are drawn. */
const SHORT = 40;
/** Height of the rows drawn beyond the visible area, in pixels. */
const OVERSCAN = 600;
/** Assumed height of a row until one is measured, in pixels. */
const ESTIMATE = 62;

export interface RowWindow {
  body: { current: HTMLTableSectionElement | null };
  first: number;
  end: number;
  /** Heights of the rows that are not drawn, in pixels. */
  above: number;
  below: number;
}

/**
 * Returns which of the rows with these ids to draw. The page scrolls in its `main` element, at first
 * to the row `current`.
 */
export function useWindow(ids: string[], current?: string): RowWindow {
  const body = useRef<HTMLTableSectionElement>(null);
  const heights = useRef(new Map<string, number>());
  const [view, setView] = useState({ top: 0, height: 1000 });
  const isLong = ids.length > SHORT;

  const update = useCallback(() => {
    const main = body.current?.closest("main");
    if (!main) return;
    const top = Math.max(0, main.getBoundingClientRect().top - body.current!.getBoundingClientRect().top);
    // Rounding avoids a new frame for each pixel.
    const next = { top: Math.floor(top / 100) * 100, height: main.clientHeight };
    setView((before) => (before.top === next.top && before.height === next.height ? before : next));
  }, []);
  useEffect(() => {
    const main = body.current?.closest("main");
    if (!isLong || !main) return;
    update();
    main.addEventListener("scroll", update, { passive: true });
    addEventListener("resize", update);
    return () => {
      main.removeEventListener("scroll", update);
      removeEventListener("resize", update);
    };
  }, [isLong]);
  const isListed = current !== undefined && ids.includes(current);
  useEffect(() => {
    const main = body.current?.closest("main");
    if (!isLong || !isListed || !main) return;
    const start = body.current!.getBoundingClientRect().top - main.getBoundingClientRect().top + main.scrollTop;
    main.scrollTop = start + ids.indexOf(current) * ESTIMATE - main.clientHeight / 2;
    requestAnimationFrame(() => requestAnimationFrame(() => body.current?.querySelector("tr[aria-current]")?.scrollIntoView({ block: "center" })));
  }, [isLong, isListed, current]);
  // The distance to the next row includes margins and borders.
  useLayoutEffect(() => {
    if (!isLong) return;
    const rows = [...(body.current?.querySelectorAll<HTMLElement>(":scope > tr[data-id]") ?? [])];
    rows.forEach((row, index) => {
      const next = rows[index + 1];
      if (next && next.offsetTop > row.offsetTop) heights.current.set(row.dataset.id!, next.offsetTop - row.offsetTop);
    });
  });

  if (!isLong) return { body, first: 0, end: ids.length, above: 0, below: 0 };
  const known = [...heights.current.values()];
  const usual = known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : ESTIMATE;
  let [offset, first, above, end, below] = [0, 0, 0, ids.length, 0];
  ids.forEach((id, index) => {
    const height = heights.current.get(id) ?? usual;
    if (offset + height < view.top - OVERSCAN) {
      first = index + 1;
      above = offset + height;
    } else if (offset > view.top + view.height + OVERSCAN) {
      end = Math.min(end, index);
      below += height;
    }
    offset += height;
  });
  return { body, first, end, above, below };
}
