/** The columns of a list: the browser stores which ones are hidden, and the URL can name them. */

import { useState } from "preact/hooks";
import { useParam } from "./hooks";

const key = (list: string) => `throughline.columns.${list}`;

const split = (text: string) => text.split(",").filter(Boolean);

/** Returns the hidden columns of a list, by their titles in lower case, and their setter. */
export function useHiddenColumns(list: string | undefined): [hidden: string[], set: (hidden: string[]) => void] {
  const [param, setParam] = useParam("hide");
  const [stored, setStored] = useState(() => (list ? (localStorage.getItem(key(list)) ?? "") : ""));
  const set = (hidden: string[]) => {
    const text = hidden.join(",");
    localStorage.setItem(key(list!), text);
    setStored(text);
    setParam(text);
  };
  return [list ? split(param || stored) : [], set];
}

/** A menu with a check box for each column. */
export function ColumnChooser({ titles, hidden, set }: { titles: string[]; hidden: string[]; set: (hidden: string[]) => void }) {
  const toggle = (name: string, isShown: boolean) => set(isShown ? hidden.filter((one) => one !== name) : [...hidden, name]);
  const shown = titles.filter((title) => !hidden.includes(title.toLowerCase())).length;
  return (
    <details class="columns">
      <summary>Columns{shown < titles.length ? ` (${shown + 1} of ${titles.length + 1})` : ""}</summary>
      <fieldset>
        <legend class="hidden">Columns</legend>
        {titles.map((title) => {
          const name = title.toLowerCase();
          return (
            <label class="check">
              <input type="checkbox" checked={!hidden.includes(name)} onChange={(event) => toggle(name, event.currentTarget.checked)} /> {title}
            </label>
          );
        })}
      </fieldset>
    </details>
  );
}
