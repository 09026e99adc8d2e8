/** A long list of which only what can be seen is there. Rows may be of any height: they are measured as they come into sight. */

import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props<R> {
  rows: R[];
  id: (row: R) => string;
  draw: (row: R) => JSX.Element;
  /** How high a row is likely to be. */
  guess: (row: R) => number;
  /** Whether new rows are followed while the end is in sight. */
  follows: boolean;
  label: string;
}

/** What is drawn beyond the edges, in pixels. */
const BEYOND = 500;
/** How often it is drawn anew before the browser gets its turn. */
const PASSES = 6;

export function Virtual<R>({ rows, id, draw, guess, follows, label }: Props<R>) {
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const atEnd = useRef(true);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [, draws] = useState(0);

  const list = useRef<HTMLOListElement>(null);
  const passes = useRef(0);

  /** Notes how high rows are; says whether that is news. */
  const note = (elements: Iterable<Element>): boolean => {
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

  // A row may grow later, when somebody opens it or more of it comes.
  const observer = useRef<ResizeObserver | null>(null);
  observer.current ??= new ResizeObserver((entries) => {
    if (note(entries.map((entry) => entry.target))) draws((n) => n + 1);
  });
  useEffect(() => () => observer.current?.disconnect(), []);
  const observe = useCallback((element: HTMLElement | null) => {
    if (element) observer.current!.observe(element);
  }, []);

  const look = useCallback(() => {
    const element = box.current!;
    atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 60;
    setView((before) => (before.top === element.scrollTop && before.height === element.clientHeight ? before : { top: element.scrollTop, height: element.clientHeight }));
  }, []);

  // What was drawn is measured at once: then the heights of all that was ever seen are known, and the end stays where it is.
  useLayoutEffect(() => {
    const element = box.current!;
    const changed = note(list.current!.children);
    if (follows && atEnd.current) element.scrollTop = element.scrollHeight;
    if (passes.current === 0) requestAnimationFrame(() => (passes.current = 0));
    if (passes.current++ < PASSES && (changed || element.scrollTop !== view.top || element.clientHeight !== view.height)) {
      setView({ top: element.scrollTop, height: element.clientHeight });
    }
  });
  useEffect(() => {
    addEventListener("resize", look);
    return () => removeEventListener("resize", look);
  }, [look]);

  // Sums over ten thousand numbers are quicker than any cleverness.
  let before = 0;
  let first = 0;
  let above = 0;
  let end = rows.length;
  let below = 0;
  for (let place = 0; place < rows.length; place++) {
    const row = rows[place]!;
    const height = heights.current.get(id(row)) ?? guess(row);
    if (before + height < view.top - BEYOND) {
      first = place + 1;
      above = before + height;
    } else if (before > view.top + view.height + BEYOND) {
      if (end === rows.length) end = place;
      below += height;
    }
    before += height;
  }

  return (
    <div class="virtual" ref={box} onScroll={look} tabIndex={0} role="region" aria-label={label}>
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
