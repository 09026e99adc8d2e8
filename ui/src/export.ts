/** Saves rows as CSV or JSON files. */

type Cell = string | number | boolean;

/** Returns the members of a row, with the names of nested members joined by dots. */
function flatten(value: unknown, path = "", found: Record<string, Cell> = {}): Record<string, Cell> {
  if (Array.isArray(value)) found[path] = value.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(" ");
  else if (value && typeof value === "object") for (const [name, inner] of Object.entries(value)) flatten(inner, path ? `${path}.${name}` : name, found);
  else if (value !== null && value !== undefined) found[path] = value as Cell;
  return found;
}

/** Quotes a cell. A spreadsheet must not interpret a text of a client as a formula. */
function quote(cell: Cell | undefined): string {
  if (cell === undefined) return "";
  const text = typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** Formats rows as CSV with a header line, after RFC 4180. */
export function toCsv(rows: object[]): string {
  const flat = rows.map((row) => flatten(row));
  const names = [...new Set(flat.flatMap((row) => Object.keys(row)))];
  return [names.map(quote), ...flat.map((row) => names.map((name) => quote(row[name])))].map((cells) => cells.join(",")).join("\r\n") + "\r\n";
}

/** Offers content as a file. */
export function save(name: string, content: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
