/** Computes the difference between two texts, line by line. */

export interface Line {
  sign: " " | "+" | "-";
  text: string;
}

/** A line, or the number of unchanged lines that are not shown here. */
export type Piece = Line | { skipped: number };

/**
 * The comparison table has at most the square of this number of cells. Above that, all lines
 * between the first and the last difference are shown as removed and added.
 */
const MAX_COMPARED_LINES = 3000;

export function diff(before: string, after: string): Line[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const lines: Line[] = a.slice(0, head).map((text) => ({ sign: " ", text }));
  lines.push(...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)));
  lines.push(...a.slice(a.length - tail).map((text): Line => ({ sign: " ", text })));
  return lines;
}

function middle(a: string[], b: string[]): Line[] {
  const removed = a.map((text): Line => ({ sign: "-", text }));
  const added = b.map((text): Line => ({ sign: "+", text }));
  if (!a.length || !b.length || a.length * b.length > MAX_COMPARED_LINES * MAX_COMPARED_LINES) return [...removed, ...added];
  // longest[i * wide + j] is the length of the longest common subsequence of a[i..] and b[j..].
  const wide = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * wide + j] = a[i] === b[j] ? longest[(i + 1) * wide + j + 1]! + 1 : Math.max(longest[(i + 1) * wide + j]!, longest[i * wide + j + 1]!);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i]! });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || longest[(i + 1) * wide + j]! >= longest[i * wide + j + 1]!)) {
      lines.push(removed[i++]!);
    } else {
      lines.push(added[j++]!);
    }
  }
  return lines;
}

/** Replaces unchanged lines more than `around` lines from a change by their number. */
export function collapseUnchanged(lines: Line[], around = 3): Piece[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.sign === " ") return;
    for (let at = Math.max(0, index - around); at <= Math.min(lines.length - 1, index + around); at++) near[at] = 1;
  });
  const pieces: Piece[] = [];
  let skipped = 0;
  lines.forEach((line, index) => {
    if (near[index]) {
      if (skipped) pieces.push({ skipped });
      skipped = 0;
      pieces.push(line);
    } else skipped++;
  });
  if (skipped) pieces.push({ skipped });
  return pieces;
}
