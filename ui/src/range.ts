/** Ranges of time for filters and for the overview. */

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** The values of the parameter `range`. Ranges of days begin at midnight UTC. */
export const RANGES: [value: string, label: string][] = [
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["1d", "Today (UTC)"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
  ["90d", "Last 90 days"],
];

export interface Bounds {
  since: string;
  until: string;
}

/**
 * Returns the bounds of a range: a number of hours or days up to now, or one day such as
 * `2026-01-31`. An empty bound is unlimited.
 */
export function bounds(range: string, now = Date.now()): Bounds {
  const iso = (time: number) => new Date(time).toISOString();
  if (/^\d{4}-\d\d-\d\d$/.test(range)) {
    const start = Date.parse(`${range}T00:00:00Z`);
    return Number.isNaN(start) ? { since: "", until: "" } : { since: iso(start), until: iso(start + DAY) };
  }
  const [, number, unit] = /^(\d{1,4})([hd])$/.exec(range) ?? [];
  if (!number) return { since: "", until: "" };
  if (unit === "h") return { since: iso(now - Number(number) * HOUR), until: "" };
  return { since: iso((Math.floor(now / DAY) - Number(number) + 1) * DAY), until: "" };
}

/** Returns the label of a range. */
export const rangeLabel = (range: string) => RANGES.find(([value]) => value === range)?.[1] ?? (range ? `${range} (UTC)` : "Any time");
