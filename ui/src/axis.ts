/** Time, on which stretches of mere waiting take little room: somebody may take a week to answer. */

export interface Stretch {
  start: number;
  end: number;
  /** Whether nothing was done in it. */
  waits: boolean;
}

/** How much room a stretch of waiting takes at most, as a share of all work. */
const MOST = 0.12;

export interface Axis {
  /** Where a time lies, from 0 to 1. */
  at: (time: number) => number;
  /** Where time was left out, from 0 to 1. */
  folds: number[];
}

export function axis(stretches: Stretch[]): Axis {
  const work = merged(stretches.filter((one) => !one.waits));
  const from = Math.min(...stretches.map((one) => one.start));
  const to = Math.max(...stretches.map((one) => one.end));
  const busy = work.reduce((sum, one) => sum + one.end - one.start, 0);
  const most = Math.max(MOST * busy, 1);
  // Corners of the line from times to places.
  const corners: [time: number, place: number][] = [[from, 0]];
  const folds: number[] = [];
  let place = 0;
  const go = (until: number, isWork: boolean) => {
    const last = corners[corners.length - 1]![0];
    const length = Math.max(0, until - last);
    const room = isWork ? length : Math.min(length, most);
    if (room < length) folds.push(place + room / 2);
    place += room;
    corners.push([Math.max(until, last), place]);
  };
  for (const one of work) {
    go(one.start, false);
    go(one.end, true);
  }
  go(to, false);
  const whole = place || 1;
  const at = (time: number) => {
    const next = corners.findIndex(([known]) => known >= time);
    if (next < 0) return 1;
    const [end, placed] = corners[next]!;
    const [start, before] = corners[Math.max(0, next - 1)]!;
    const share = end > start ? (time - start) / (end - start) : 1;
    return (before + (placed - before) * share) / whole;
  };
  return { at, folds: folds.map((fold) => fold / whole) };
}

/** The same in order, without any that overlap. */
function merged(stretches: Stretch[]): Stretch[] {
  const all: Stretch[] = [];
  for (const one of [...stretches].sort((a, b) => a.start - b.start)) {
    const last = all[all.length - 1];
    if (last && one.start <= last.end) last.end = Math.max(last.end, one.end);
    else all.push({ ...one });
  }
  return all;
}
