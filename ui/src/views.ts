/** Saved views: filtered lists that the browser stores, and that the command palette opens. */

const KEY = "throughline.views";
/** Maximum number of stored views. */
const MOST = 50;

export interface SavedView {
  name: string;
  /** The URL hash of the view, such as `#/calls?status=failed`. */
  hash: string;
}

/** Returns the stored views. Invalid entries are ignored. */
export function savedViews(): SavedView[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    const isView = (view: any): view is SavedView => typeof view?.name === "string" && typeof view?.hash === "string" && view.hash.startsWith("#/");
    return Array.isArray(stored) ? stored.filter(isView) : [];
  } catch {
    return [];
  }
}

export const isSaved = (hash: string) => savedViews().some((view) => view.hash === hash);

/** Stores a view, or removes it if it is stored already. */
export function toggleView(view: SavedView) {
  const others = savedViews().filter((one) => one.hash !== view.hash);
  const next = isSaved(view.hash) ? others : [view, ...others].slice(0, MOST);
  localStorage.setItem(KEY, JSON.stringify(next));
}

/** Names a view after its page and its filters: `Calls: status failed, range 7d`. */
export function viewName(title: string, hash: string): string {
  const params = new URLSearchParams(hash.slice(hash.indexOf("?") + 1));
  return `${title}: ${[...params].map(([name, value]) => `${name} ${value}`).join(", ")}`;
}
