/** The console: layout, navigation and routing. */

import { render, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { clearKey, storedKey } from "./api";
import { to, useFetch, useRoute, useTheme, useTimeStyle, useTitle, type Theme } from "./hooks";
import { zone } from "./format";
import { Palette, type Command } from "./palette";
import { copyText, Empty, PageHead, Switch } from "./parts";
import { may, setAccount, type Account, type Permission } from "./permissions";
import { SignedInUser } from "./session";
import { savedViews } from "./views";
import { ApiPage } from "./pages/api";
import { CallPage } from "./pages/call";
import { CallsPage } from "./pages/calls";
import { ComparePage } from "./pages/compare";
import { DoctorPage } from "./pages/doctor";
import { InboxPage } from "./pages/inbox";
import { JournalPage } from "./pages/journal";
import { MapPage } from "./pages/map";
import { OverviewPage } from "./pages/overview";
import { PlaygroundPage } from "./pages/playground";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { SettingsPage } from "./pages/settings";
import { SignIn } from "./pages/signin";
import { ThreadPage, ThreadsPage } from "./pages/threads";
import { TracePage } from "./pages/trace";
import { UsagePage } from "./pages/usage";
import type { PendingRequest } from "./types";
import "./styles.css";
import "./settings.css";

/** The pages of the menu. A page is shown only to callers with its permission. */
const PAGES: [page: string, name: string, shortcut: string, icon: string, permission: Permission][] = [
  ["overview", "Overview", "o", "M4 13a8 8 0 1 1 16 0M12 13l4-4M4 19h16", "inspect"],
  ["runs", "Runs", "r", "M4 12h4l2-6 4 12 2-6h4", "inspect"],
  ["threads", "Threads", "t", "M4 17c5 0 5-10 8-10s3 10 8 10", "inspect"],
  ["calls", "Calls", "c", "M7 7h10m-3-3 3 3-3 3M17 17H7m3-3-3 3 3 3", "inspect"],
  ["inbox", "Inbox", "i", "M4 13h4l2 3h4l2-3h4M6 5h12l2 8v6H4v-6z", "inspect"],
  ["journal", "Journal", "j", "M6 4h12v16H6zM9 8h6M9 12h6M9 16h3", "inspect"],
  ["usage", "Usage", "u", "M5 20V11m5 9V5m5 15v-7m5 7V8", "inspect"],
  ["playground", "Playground", "p", "M8 5v14l11-7z", "use"],
  ["doctor", "Doctor", "d", "M12 5v14M5 12h14", "use"],
  ["settings", "Settings", "s", "M4 7h10m4 0h2M4 17h4m4 0h8M16 5v4M10 15v4", "inspect"],
  ["api", "API", "a", "m8 8-4 4 4 4m8-8 4 4-4 4M13.5 5l-3 14", "read"],
];

function App() {
  const route = useRoute();
  const [theme, setTheme] = useTheme();
  const [signedOut, setSignedOut] = useState(false);
  const [help, setHelp] = useState(false);
  const [palette, setPalette] = useState(false);
  const [times, setTimes] = useTimeStyle();
  const main = useRef<HTMLElement>(null);
  const account = useFetch<Account>(signedOut ? null : "/v1/throughline/usage");
  setAccount(account.value);
  const pages = PAGES.filter(([, , , , permission]) => may(permission));
  const inbox = useFetch<{ waiting: PendingRequest[] }>(signedOut || !account.value || !may("inspect") ? null : "/v1/throughline/inbox", 4000);
  const here = route[0] ?? "overview";

  useEffect(() => {
    const out = () => setSignedOut(true);
    addEventListener("throughline:signin", out);
    return () => removeEventListener("throughline:signin", out);
  }, []);

  useEffect(() => {
    let awaitsPage = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setPalette((open) => !open);
        return;
      }
      if (document.querySelector("dialog[open]")) return;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "?") setHelp((open) => !open);
      else if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
      } else if (!awaitsPage && (event.key === "j" || event.key === "k")) moveFocus(event.key === "j" ? 1 : -1);
      else if (!awaitsPage && event.key === "c") copyFocusedId();
      else if (event.key === "T") setTheme(isDark() ? "light" : "dark");
      else if (awaitsPage) {
        const match = PAGES.find(([, , shortcut]) => shortcut === event.key);
        if (match) location.hash = to(match[0]);
      }
      awaitsPage = event.key === "g";
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [setTheme]);

  // Move the focus to the new page, so that screen readers start at its top.
  const path = route.join("/");
  const before = useRef(path);
  useEffect(() => {
    if (before.current !== path) main.current?.focus();
    before.current = path;
  }, [path]);

  const signIn = () => {
    setSignedOut(false);
    account.reload();
  };
  const signOut = () => {
    clearKey();
    setSignedOut(true);
  };
  const skip = (event: Event) => {
    event.preventDefault();
    main.current?.focus();
  };
  if (signedOut) return <SignIn done={signIn} />;
  const waiting = inbox.value?.waiting.length ?? 0;
  const commands: Command[] = [
    ...pages.map(([page, name]) => ({ name, kind: "Page", href: to(page) })),
    ...savedViews().map(({ name, hash }) => ({ name, kind: "Saved view", href: hash })),
    { name: "Light theme", kind: "Action", act: () => setTheme("light") },
    { name: "Dark theme", kind: "Action", act: () => setTheme("dark") },
    { name: "Keyboard shortcuts", kind: "Action", act: () => setHelp(true) },
    { name: times === "relative" ? "Show absolute times" : "Show relative times", kind: "Action", act: () => setTimes(times === "relative" ? "absolute" : "relative") },
    ...(storedKey() ? [{ name: "Sign out", kind: "Action", act: signOut }] : []),
  ];
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <header class="side">
        <a class="brand" href={to("overview")}>
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M4 21c6 0 6-10 12-10s6 10 12 10" />
            <circle cx="16" cy="11" r="3" />
          </svg>
          <span>Throughline</span>
        </a>
        <nav aria-label="Pages">
          {pages.map(([page, name, , icon]) => (
            <a href={to(page)} aria-current={active(here) === page ? "page" : undefined}>
              <svg viewBox="0 0 24 24" aria-hidden="true"><path d={icon} /></svg>
              <span>{name}</span>
              {page === "inbox" && waiting ? <b class="badge" aria-label={`${waiting} waiting`}>{waiting}</b> : null}
            </a>
          ))}
        </nav>
        <div class="foot">
          <button class="search" onClick={() => setPalette(true)} aria-keyshortcuts="Control+K">
            Search <kbd>Ctrl K</kbd>
          </button>
          <Switch label="Theme" options={THEMES} value={theme} set={setTheme} />
          <button class="quiet times" onClick={() => setTimes(times === "relative" ? "absolute" : "relative")} title="Switch between relative and absolute times">
            Times: {times}, {zone()}
          </button>
          <button class="quiet help" onClick={() => setHelp(true)} aria-keyshortcuts="?">Shortcuts</button>
          {storedKey() ? <button class="quiet" onClick={signOut}>Sign out</button> : <SignedInUser />}
          {account.value ? <p class="who">tenant {account.value.tenant}{account.value.role ? `, ${account.value.role}` : ""}</p> : null}
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1} aria-live="off">
        <Page route={route} decided={inbox.reload} />
      </main>
      {help ? <Help close={() => setHelp(false)} /> : null}
      {palette ? <Palette commands={commands} close={() => setPalette(false)} /> : null}
    </div>
  );
}

const active = (here: string) => ({ run: "runs", trace: "runs", compare: "runs", thread: "threads", map: "threads", call: "calls" })[here] ?? here;

/** Moves the focus to the next or previous row of the tables on the page. */
function moveFocus(step: number) {
  const links = [...document.querySelectorAll<HTMLAnchorElement>("main td.title a")];
  const row = document.activeElement?.closest("tr");
  const at = links.findIndex((link) => link.closest("tr") === row);
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step));
  links[next]?.focus();
}

/** Copies the id of the row that has the focus. */
function copyFocusedId() {
  const row = document.activeElement?.closest<HTMLElement>("tr[data-id]");
  if (!row) return;
  void copyText(row.dataset.id!).then((isDone) => {
    const button = row.querySelector(".copy");
    if (!isDone || !button) return;
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
  });
}

const ROUTES: Record<string, (id: string, decided: () => void, other: string) => JSX.Element> = {
  overview: () => <OverviewPage />,
  runs: () => <RunsPage />,
  run: (id, decided) => <RunPage key={id} run={id} decided={decided} />,
  compare: (id, _, other) => <ComparePage key={`${id} ${other}`} first={id} second={other} />,
  trace: (id) => <TracePage key={id} run={id} />,
  threads: () => <ThreadsPage />,
  thread: (id) => <ThreadPage key={id} thread={id} />,
  map: (id) => <MapPage key={id} thread={id} />,
  calls: () => <CallsPage />,
  call: (id) => <CallPage key={id} call={id} />,
  inbox: (_, decided) => <InboxPage decided={decided} />,
  journal: () => <JournalPage />,
  usage: () => <UsagePage />,
  playground: () => <PlaygroundPage />,
  doctor: () => <DoctorPage />,
  settings: () => <SettingsPage />,
  api: () => <ApiPage />,
};

function Page({ route, decided }: { route: string[]; decided: () => void }) {
  const [page = "overview", id = "", other = ""] = route;
  const permission = PAGES.find(([known]) => known === active(page))?.[4];
  if (permission && !may(permission)) return <Empty title="This key cannot open the page">The role of the key does not include it. Choose a page from the menu, or sign in with another key.</Empty>;
  return Object.hasOwn(ROUTES, page) ? ROUTES[page]!(id, decided, other) : <NotFound />;
}

function NotFound() {
  useTitle("Page not found");
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title="There is no page at this address">Choose a page from the menu, or press Ctrl K to search.</Empty>
    </>
  );
}

const isDark = () => {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const THEMES: [Theme, string][] = [["light", "Light"], ["auto", "Auto"], ["dark", "Dark"]];

const SHORTCUTS: [keys: string[], name: string][] = [
  ...PAGES.map(([, name, shortcut]): [string[], string] => [["g", shortcut], name]),
  [["Ctrl", "K"], "Open the command palette"],
  [["/"], "Search the list"],
  [["j"], "Next row"],
  [["k"], "Previous row"],
  [["Enter"], "Open the row"],
  [["c"], "Copy the id of the row"],
  [["Shift", "T"], "Switch between light and dark theme"],
  [["?"], "Show keyboard shortcuts"],
];

function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="help">
      <h2 id="help">Keyboard</h2>
      <dl class="keys">
        {SHORTCUTS.map(([keys, name]) => (
          <div>
            <dt>{keys.map((key) => <><kbd>{key}</kbd> </>)}</dt>
            <dd>{name}</dd>
          </div>
        ))}
      </dl>
      <button onClick={() => dialog.current?.close()}>Close</button>
    </dialog>
  );
}

render(<App />, document.getElementById("app")!);
