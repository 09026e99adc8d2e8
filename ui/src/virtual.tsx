/** A virtual list: only visible rows are drawn. Rows can have different heights. */

import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props<R> {
  rows: R[];
  id: (row: R) => string;
  draw: (row: R) => JSX.Element;
  /** Estimates the height in pixels of a row that has not been measured yet. */
  estimateHeight: (row: R) => number;
  /** Whether to scroll to new rows while the end is visible. */
  follows: boolean;
  label: string;
}

/** Height of the rows drawn beyond the visible area, in pixels. */
const OVERSCAN = 500;
/** Maximum number of measuring passes per frame. */
const PASSES = 6;

export function VirtualList<R>({ rows, id, draw, estimateHeight, follows, label }: Props<R>) {
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const atEnd = useRef(true);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [, setRevision] = useState(0);

  const list = useRef<HTMLOListElement>(null);
  const passes = useRef(0);

  /** Stores the heights of rows; returns whether any changed. */
  const storeHeights = (elements: Iterable<Element>): boolean => {
    let changed = false;
    for (const element of elements) {
      const key = (element as HTMLElement).dataset.key!;
      const { height } = element.getBoundingClientRect();
      if (height > 0 && heights.current.get(key) !== height) {
        heights.current.set(key, height);
        changed = true;
      }
    }
    return changed;
  };

  // A row can grow later, when it is expanded or receives more text.
  const observer = useRef<ResizeObserver | null>(null);
  observer.current ??= new ResizeObserver((entries) => {
    if (storeHeights(entries.map((entry) => entry.target))) setRevision((n) => n + 1);
  });
  useEffect(() => () => observer.current?.disconnect(), []);
  const observe = useCallback((element: HTMLElement | null) => {
    if (element) observer.current!.observe(element);
  }, []);

  const updateView = useCallback(() => {
    const element = box.current;
    // A resize event may arrive while the page closes.
    if (!element) return;
    atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 60;
    setView((before) => (before.top === element.scrollTop && before.height === element.clientHeight ? before : { top: element.scrollTop, height: element.clientHeight }));
  }, []);

  // Measure rows before the browser paints, so that visible heights are exact and the scroll
  // position at the end of the list stays stable.
  useLayoutEffect(() => {
    const element = box.current!;
    const changed = storeHeights(list.current!.children);
    if (follows && atEnd.current) element.scrollTop = element.scrollHeight;
    if (passes.current === 0) requestAnimationFrame(() => (passes.current = 0));
    if (passes.current++ < PASSES && (changed || element.scrollTop !== view.top || element.clientHeight !== view.height)) {
      setView({ top: element.scrollTop, height: element.clientHeight });
    }
  });
  useEffect(() => {
    addEventListener("resize", updateView);
    return () => removeEventListener("resize", updateView);
  }, [updateView]);

  // Summing the heights of ten thousand rows per render is fast enough.
  let before = 0;
  let first = 0;
  let above = 0;
  let end = rows.length;
  let below = 0;
  for (let index = 0; index < rows.length; index++) {
    const row = rows[index]!;
    const height = heights.current.get(id(row)) ?? estimateHeight(row);
    if (before + height < view.top - OVERSCAN) {
      first = index + 1;
      above = before + height;
    } else if (before > view.top + view.height + OVERSCAN) {
      if (end === rows.length) end = index;
      below += height;
    }
    before += height;
  }

  return (
    <div class="virtual" ref={box} onScroll={updateView} tabIndex={0} role="region" aria-label={label}>
      <div style={{ height: `${above}px` }} />
      <ol ref={list}>
        {rows.slice(first, end).map((row, offset) => (
          <li key={id(row)} data-key={id(row)} ref={observe} aria-setsize={rows.length} aria-posinset={first + offset + 1}>
            {draw(row)}
          </li>
        ))}
      </ol>
      <div style={{ height: `${below}px` }} />
    </div>
  );
}
