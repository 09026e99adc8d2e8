/** Formats numbers, times and untrusted texts. */

const integer = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n: number) => integer.format(n);
export const compact = (n: number) => (n < 10_000 ? integer.format(n) : short.format(n));

export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(1)} KB`;
  if (n < 1e9) return `${(n / 1e6).toFixed(1)} MB`;
  return `${(n / 1e9).toFixed(1)} GB`;
}

export function dollars(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return "–";
  if (usd === 0) return "$0";
  if (usd < 0.01) return `$${usd.toFixed(4)}`;
  return `$${usd.toFixed(2)}`;
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Relative time, for lists; the tooltip contains the exact time. */
export function ago(iso: string, now = Date.now()): string {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(iso).toLocaleDateString("en-CA");
}

const exactTime = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** The date and time with the time zone. */
export function exact(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "–" : exactTime.format(date);
}
export const clock = (iso: string) => new Date(iso).toLocaleTimeString("en-GB");

/** The time zone of all displayed times, such as `Europe/Lisbon`. */
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

export function percent(part: number, whole: number): string {
  if (!whole) return "–";
  const share = (part / whole) * 100;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

/** Returns the command that continues a run, with placeholders for tools that the server lacks. */
export function resumeCommand(run: string, missingTools: string[]): string {
  const tools = missingTools.map((name) => ` --tool ${/^[\w.-]+$/.test(name) ? name : "NAME"}=COMMAND`);
  return `throughline resume ${run}${tools.join("")}`;
}

/** Shortens an id to its start and end. */
export function shortId(id: string): string {
  return id.length <= 20 ? id : `${id.slice(0, 9)}…${id.slice(-6)}`;
}

/** Control, invisible and bidirectional characters, and joiners after Latin-1 characters. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|(?<=^|[\u0000-\u00ff])[\u200c\u200d]/gu;

/** Escapes control, invisible and bidirectional characters of an untrusted text. */
export function plain(text: string): string {
  return text.replace(/\r\n/g, "\n").replace(HIDDEN, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

const SEALED = /(ignature|^encrypted|^redacted|^fingerprint)/;
const BASE64 = /^[A-Za-z0-9+/_=-]+$/;

/** Formats JSON with an indentation of two spaces, and replaces Seals by their size. */
export function pretty(value: unknown): string {
  const replacer = (key: string, inner: unknown) => {
    if (typeof inner !== "string") return inner;
    const sealed = SEALED.test(key) && inner.length > 24;
    return sealed || (inner.length > 120 && BASE64.test(inner)) ? `‹sealed ${bytes(inner.length)}›` : inner;
  };
  return plain(JSON.stringify(value, replacer, 2) ?? "");
}

/** Formats a value on one line. */
export function line(value: unknown): string {
  return typeof value === "string" ? plain(value) : plain(JSON.stringify(value) ?? "");
}
