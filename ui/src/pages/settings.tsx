/** Settings: keys, budgets, routes, providers, stored data. */

import { useMemo } from "preact/hooks";
import { count, plain } from "../format";
import { useFetch, useParam, useTitle, type FetchState } from "../hooks";
import { Copy, Dot, Empty, FetchStatus, PageHead, Switch, Table, type Column } from "../parts";
import { BudgetList } from "./budgets";
import { KeyList } from "./keys";
import { RouteList, type Route } from "./routes";

interface Provider {
  name: string;
  wire: string;
  key: "caller" | "optional" | "set" | "source" | "missing" | "none";
  models: string[];
  accounts: { name: string; weight: number; key: Provider["key"] }[];
  is_configured: boolean;
}

interface Settings {
  config?: {
    values: { key: string; value: string; from: string }[];
    providers: Provider[];
    routes: Route[];
    catalog: { version: string | null; is_updated: boolean; problem: boolean; providers: number; profiles: number };
    retention: { classes: { class: string; age: string | null }[]; interval: string };
    sinks: { name: string; kind: string }[];
  };
  health: {
    store: { ok: boolean; problem?: string };
    problem?: string;
    resting: { provider: string; model?: string }[];
    cooling: { provider: string; account: string; model?: string; seconds: number }[];
  };
}

const TABS: [value: string, label: string][] = [["keys", "Keys"], ["budgets", "Budgets"], ["routes", "Routes"], ["providers", "Providers"], ["data", "Stored data"], ["values", "All values"]];

export function SettingsPage() {
  useTitle("Settings");
  const [chosen, setTab] = useParam("tab");
  const tab = TABS.some(([value]) => value === chosen) ? chosen : "keys";
  const isConfig = tab !== "keys" && tab !== "budgets";
  const settings = useFetch<Settings>(isConfig ? "/v1/throughline/settings" : null, 5000);
  return (
    <>
      <PageHead title="Settings">
        <div class="scroller"><Switch label="Section" options={TABS} value={tab} set={(value) => setTab(value === "keys" ? "" : value)} /></div>
      </PageHead>
      {tab === "keys" ? <KeyList /> : null}
      {tab === "budgets" ? <BudgetList /> : null}
      {isConfig ? <ConfigTab tab={tab} state={settings} /> : null}
    </>
  );
}

function ConfigTab({ tab, state }: { tab: string; state: FetchState<Settings> }) {
  if (!state.value) return <FetchStatus state={state} />;
  if (!state.value.config) return <Empty title="No configuration">This server does not show its configuration.</Empty>;
  const { config, health } = state.value;
  return (
    <>
      {tab === "routes" ? <RouteList configured={config.routes} /> : null}
      {tab === "providers" ? <Providers config={config} health={health} /> : null}
      {tab === "data" ? <StoredData config={config} health={health} /> : null}
      {tab === "values" ? <Values values={config.values} /> : null}
    </>
  );
}

/** Explains where settings are changed. */
function ChangeHint({ what }: { what: string }) {
  const command = "throughline config check";
  return (
    <p class="hint">
      {what} come from the configuration file of the gateway and cannot be changed here. Edit <code>throughline.toml</code> and check it with <code>{command}</code> <Copy text={command} label="Copy command" /> A running gateway applies a changed file within a few seconds; a setting that needs a restart is named in its log.
    </p>
  );
}

const KEYS: Record<Provider["key"], [tone: string, label: string]> = {
  set: ["good", "key set"],
  source: ["good", "from a source"],
  caller: ["dim", "the caller's"],
  optional: ["dim", "the caller's, or none"],
  none: ["dim", "not needed"],
  missing: ["bad", "key missing"],
};

type Config = NonNullable<Settings["config"]>;

function Providers({ config, health }: { config: Config; health: Settings["health"] }) {
  const columns: Column<Provider>[] = [
    ["Provider", ({ name }) => <strong><bdi>{plain(name)}</bdi></strong>, "title"],
    ["Health", (provider) => <Health provider={provider} health={health} />],
    ["Key", ({ key }) => <Dot tone={KEYS[key][0]}>{KEYS[key][1]}</Dot>],
    ["Wire", ({ wire }) => wire],
    ["Models", ({ models }) => (models.length ? <bdi class="block">{models.map(plain).join(" ")}</bdi> : <span class="dim">by name only</span>)],
    ["Accounts", ({ accounts }) => (accounts.length ? accounts.map((one) => <bdi class="block">{plain(one.name)}, weight {one.weight}{one.key === "missing" ? ", key missing" : ""}</bdi>) : "1")],
  ];
  return (
    <>
      {health.problem ? <p class="callout">{plain(health.problem)}</p> : null}
      <section aria-labelledby="providers">
        <h2 id="providers">Providers</h2>
        <Table rows={config.providers} columns={columns} id={(one) => one.name} label="Providers" />
      </section>
      <ChangeHint what="Providers" />
      <p class="hint">A provider rests after repeated failures and is tried again after a pause. Addresses and keys are not shown; <code>throughline config show</code> prints the addresses.</p>
    </>
  );
}

function Health({ provider, health }: { provider: Provider; health: Settings["health"] }) {
  // An account of a pool has its own endpoint, such as openai#team-b, and simulators have one each.
  const belongs = (name: string) => name === provider.name || name.startsWith(`${provider.name}#`) || name.startsWith(`${provider.name} `);
  const resting = health.resting.filter((one) => belongs(one.provider));
  const cooling = health.cooling.filter((one) => one.provider === provider.name);
  if (provider.key === "missing") return <Dot tone="bad">not usable</Dot>;
  if (!resting.length && !cooling.length) return <Dot tone="good">available</Dot>;
  return (
    <span class="stack">
      {resting.map((one) => <Dot tone={one.model ? "warn" : "bad"}>{one.model ? `${plain(one.model)} fails` : "requests fail"}</Dot>)}
      {cooling.map((one) => <Dot tone="warn">{plain(one.account)}{one.model ? `, ${plain(one.model)}` : ""} pauses for {one.seconds} s</Dot>)}
    </span>
  );
}

const CLASSES: Record<string, string> = {
  requests: "Requests as received and sent",
  bodies: "Bodies of requests and replies",
  threads: "Threads",
  runs: "Runs",
  traces: "Trace files",
};

function StoredData({ config, health }: { config: Config; health: Settings["health"] }) {
  const { catalog, retention, sinks } = config;
  const classes: Column<(typeof retention.classes)[number]>[] = [
    ["Data", (row) => CLASSES[row.class] ?? plain(row.class), "title"],
    ["Setting", (row) => <code>retention.{plain(row.class)}</code>],
    ["Kept", ({ age }) => (age ? plain(age) : "forever"), "number"],
  ];
  return (
    <>
      <section aria-labelledby="store">
        <h2 id="store">Store</h2>
        <p data-store={health.store.ok ? "ok" : "failing"}>{health.store.ok ? <Dot tone="good">reads and writes succeed</Dot> : <Dot tone="bad">{plain(health.store.problem ?? "failing")}</Dot>}</p>
      </section>
      <section aria-labelledby="retention">
        <h2 id="retention">Retention</h2>
        <Table rows={retention.classes} columns={classes} id={(row) => row.class} label="Retention" />
        <p class="hint">Expired data is deleted every {plain(retention.interval)}.</p>
      </section>
      <section aria-labelledby="catalog">
        <h2 id="catalog">Catalog</h2>
        <p>
          {catalog.version ? `Version ${plain(catalog.version)}` : "Built in"}{catalog.is_updated ? ", from an installed file" : ", built in"}: {count(catalog.providers)} providers, {count(catalog.profiles)} model profiles.
          {catalog.problem ? " The installed file is not used; the log of the gateway states the reason." : ""}
        </p>
      </section>
      <section aria-labelledby="sinks">
        <h2 id="sinks">Trace sinks</h2>
        {sinks.length ? (
          <ul class="notes">{sinks.map((sink) => <li><bdi>{plain(sink.name)}</bdi> <span class="tag">{plain(sink.kind)}</span></li>)}</ul>
        ) : (
          <p class="dim">None. A section <code>[tracing.sinks.NAME]</code> sends traces to files or to a collector.</p>
        )}
      </section>
      <ChangeHint what="Retention, the catalog and sinks" />
    </>
  );
}

function Values({ values }: { values: Config["values"] }) {
  const [search, setSearch] = useParam("search");
  const rows = useMemo(() => values.filter(({ key, value }) => `${key} ${value}`.includes(search)), [values, search]);
  const columns: Column<Config["values"][number]>[] = [
    ["Setting", ({ key }) => <code>{plain(key)}</code>, "title"],
    ["Value", ({ value }) => <bdi>{plain(value)}</bdi>],
    ["Source", ({ from }) => <span class="dim">{plain(from)}</span>],
  ];
  return (
    <>
      <input class="narrow" type="search" aria-label="Search settings" placeholder="Search settings" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
      {rows.length ? <Table rows={rows} columns={columns} id={(row) => row.key} label="Settings" /> : <Empty title="No matching settings"><button onClick={() => setSearch("")}>Clear the search</button></Empty>}
      <ChangeHint what="These values" />
    </>
  );
}
