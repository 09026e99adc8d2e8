/** A time axis with compressed waiting times, because a person may take a week to answer. */

export interface Interval {
  start: number;
  end: number;
  isWait: boolean;
}

/** Maximum length of a waiting interval on the axis, as a share of the total working time. */
const MAX_WAIT_SHARE = 0.12;

export interface Axis {
  /** Returns the position of a time on the axis, from 0 to 1. */
  at: (time: number) => number;
  /** Positions of compressed intervals, from 0 to 1. */
  folds: number[];
}

export function createAxis(intervals: Interval[]): Axis {
  const work = mergeOverlaps(intervals.filter((one) => !one.isWait));
  const from = Math.min(...intervals.map((one) => one.start));
  const to = Math.max(...intervals.map((one) => one.end));
  const busy = work.reduce((sum, one) => sum + one.end - one.start, 0);
  const most = Math.max(MAX_WAIT_SHARE * busy, 1);
  // Corner points of the piecewise linear map from times to positions.
  const corners: [time: number, offset: number][] = [[from, 0]];
  const folds: number[] = [];
  let offset = 0;
  const advance = (until: number, isWork: boolean) => {
    const last = corners[corners.length - 1]![0];
    const length = Math.max(0, until - last);
    const room = isWork ? length : Math.min(length, most);
    if (room < length) folds.push(offset + room / 2);
    offset += room;
    corners.push([Math.max(until, last), offset]);
  };
  for (const one of work) {
    advance(one.start, false);
    advance(one.end, true);
  }
  advance(to, false);
  const total = offset || 1;
  const at = (time: number) => {
    const next = corners.findIndex(([known]) => known >= time);
    if (next < 0) return 1;
    const [end, placed] = corners[next]!;
    const [start, before] = corners[Math.max(0, next - 1)]!;
    const share = end > start ? (time - start) / (end - start) : 1;
    return (before + (placed - before) * share) / total;
  };
  return { at, folds: folds.map((fold) => fold / total) };
}

/** Sorts intervals and merges overlapping ones. */
function mergeOverlaps(intervals: Interval[]): Interval[] {
  const all: Interval[] = [];
  for (const one of [...intervals].sort((a, b) => a.start - b.start)) {
    const last = all[all.length - 1];
    if (last && one.start <= last.end) last.end = Math.max(last.end, one.end);
    else all.push({ ...one });
  }
  return all;
}
