/** The API: all routes of the server, with a form that sends a request. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { exchange, storedKey } from "../api";
import { bytes, duration, plain } from "../format";
import { useFetch, useParam, useTitle } from "../hooks";
import { Copy, Dot, Empty, FetchStatus, LongText, PageHead } from "../parts";

interface Parameter {
  name: string;
  in: "path" | "query";
  required?: boolean;
  schema?: { type?: string; description?: string };
  description?: string;
}

interface Operation {
  summary: string;
  tags?: string[];
  parameters?: Parameter[];
  requestBody?: { content?: Record<string, { schema?: { properties?: Record<string, { type?: string; description?: string }> } }> };
}

interface Route extends Operation {
  method: string;
  path: string;
  /** The method and the path, which identify the route. */
  name: string;
}

/** Maximum number of characters of a response that the page reads. */
const MOST = 200_000;

export function ApiPage() {
  useTitle("API");
  const document = useFetch<{ paths: Record<string, Record<string, Operation>> }>("/openapi.json");
  const [chosen, setChosen] = useParam("op");
  const [search, setSearch] = useParam("search");
  const all = useMemo(() => routesOf(document.value?.paths ?? {}), [document.value]);
  const words = search.toLowerCase();
  const found = all.filter(({ name, summary }) => `${name} ${summary}`.toLowerCase().includes(words));
  const route = all.find(({ name }) => name === chosen);
  const groups = useMemo(() => groupBy(found), [all, words]);
  return (
    <>
      <PageHead title="API" lead="All routes of this server. Choose a route to see its parameters and to send a request with your key.">
        <div class="actions">
          <a class="button" href="/docs">Page without scripts</a>
          <a class="button" href="/openapi.json">OpenAPI document</a>
        </div>
      </PageHead>
      <FetchStatus state={document} />
      {document.value ? (
        <div class="api">
          <div class="routes">
            <input type="search" aria-label="Search routes" placeholder="Search paths and summaries" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            {found.length ? null : <p class="dim">No matching route.</p>}
            {groups.map(([tag, routes]) => (
              <details open={Boolean(words) || routes.some(({ name }) => name === chosen)} key={tag}>
                <summary>{plain(tag)} <small class="dim">{routes.length}</small></summary>
                <ul>
                  {routes.map((one) => (
                    <li>
                      <button aria-current={one.name === chosen ? "true" : undefined} onClick={() => setChosen(one.name)} title={plain(one.summary)}>
                        <b class={`method ${one.method.toLowerCase()}`}>{one.method}</b> <bdi>{plain(one.path)}</bdi>
                      </button>
                    </li>
                  ))}
                </ul>
              </details>
            ))}
          </div>
          {route ? <TryRoute key={route.name} route={route} /> : <Empty title={chosen ? "Route not found" : "No route selected"}>Choose a route from the list.</Empty>}
        </div>
      ) : null}
    </>
  );
}

function routesOf(paths: Record<string, Record<string, Operation>>): Route[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([name, operation]) => {
      const method = name.toUpperCase();
      return { ...operation, method, path, name: `${method} ${path}` };
    }),
  );
}

function groupBy(routes: Route[]): [tag: string, routes: Route[]][] {
  const groups = new Map<string, Route[]>();
  for (const route of routes) {
    const tag = route.tags?.[0] ?? "other";
    groups.set(tag, [...(groups.get(tag) ?? []), route]);
  }
  return [...groups];
}

interface Answer {
  status: number;
  type: string;
  text: string;
  ms: number;
  isCut: boolean;
}

function TryRoute({ route }: { route: Route }) {
  const { method, path, parameters = [] } = route;
  const properties = route.requestBody?.content?.["application/json"]?.schema?.properties ?? {};
  const hasBody = Boolean(route.requestBody);
  const [values, setValues] = useState<Record<string, string>>({});
  const [body, setBody] = useState("{}");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const stop = useRef<AbortController | null>(null);
  const result = useRef<HTMLElement>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const missing = parameters.some((one) => one.in === "path" && !values[one.name]?.trim());
  const target = targetOf(path, parameters, values);
  const command = toCurl(method, target, hasBody ? body : undefined);
  const send = async (event: Event) => {
    event.preventDefault();
    stop.current = new AbortController();
    setBusy(true);
    setProblem("");
    setAnswer(null);
    try {
      if (hasBody && body.trim()) JSON.parse(body);
      const started = performance.now();
      const response = await exchange(method, target, hasBody ? body : undefined, stop.current.signal);
      await readAnswer(response, started, setAnswer);
    } catch (error) {
      const { name, message } = error as Error;
      if (name !== "AbortError") setProblem(error instanceof SyntaxError ? `The body is not valid JSON: ${message}` : "The server does not respond.");
    }
    setBusy(false);
    result.current?.scrollIntoView({ block: "nearest" });
  };
  return (
    <form class="card try" onSubmit={send} aria-label={`${method} ${plain(path)}`}>
      <h2><b class={`method ${method.toLowerCase()}`}>{method}</b> <code>{plain(path)}</code></h2>
      <p>{plain(route.summary)}</p>
      {parameters.length ? (
        <div class="fields">
          {parameters.map((one) => (
            <label>
              <span>{plain(one.name)} <small class="dim">{one.in}{one.schema?.type ? `, ${one.schema.type}` : ""}</small></span>
              <input type="text" value={values[one.name] ?? ""} required={one.in === "path"} onInput={(event) => setValues({ ...values, [one.name]: event.currentTarget.value })} />
              {one.schema?.description ?? one.description ? <small class="dim">{plain(one.schema?.description ?? one.description ?? "")}</small> : null}
            </label>
          ))}
        </div>
      ) : null}
      {hasBody ? (
        <label>
          Body
          <textarea class="mono" rows={8} value={body} spellcheck={false} onInput={(event) => setBody(event.currentTarget.value)} />
        </label>
      ) : null}
      {Object.keys(properties).length ? (
        <details>
          <summary>Members of the body</summary>
          <dl class="facts wide">
            {Object.entries(properties).map(([name, { type, description }]) => (
              <>
                <dt><code>{plain(name)}</code> {type ? <small>{plain(type)}</small> : null}</dt>
                <dd>{plain(description ?? "")}</dd>
              </>
            ))}
          </dl>
        </details>
      ) : null}
      {method === "GET" ? null : <p class="hint">This request can change data, and model calls are charged.</p>}
      <div class="actions">
        <button class="primary" disabled={isBusy || missing}>{isBusy ? "Sending…" : "Send request"}</button>
        {isBusy ? <button type="button" onClick={() => stop.current?.abort()}>Stop</button> : null}
        <Copy text={command} label="Copy as curl" />
      </div>
      {problem ? <p class="trouble" role="alert">{plain(problem)}</p> : null}
      {answer ? (
        <section aria-labelledby="response" ref={result}>
          <h2 id="response">Response</h2>
          <p class="counts">
            <Dot tone={answer.status < 400 ? "good" : "bad"}>{answer.status}</Dot>
            <span>{duration(answer.ms)}</span>
            <span>{bytes(answer.text.length)}{answer.isCut ? ", cut" : ""}</span>
            <span>{plain(answer.type)}</span>
          </p>
          <div class="response" tabIndex={0} role="region" aria-label="Response body"><LongText text={answer.text || "No content"} limit={6000} lines={200} mono /></div>
        </section>
      ) : null}
    </form>
  );
}

/** Fills the path, and appends the query parameters that have a value. */
function targetOf(path: string, parameters: Parameter[], values: Record<string, string>): string {
  const filled = path.replace(/\{(\w+)\}/g, (all, name: string) => (values[name]?.trim() ? encodeURIComponent(values[name]!.trim()) : all));
  const query = new URLSearchParams();
  for (const one of parameters) if (one.in === "query" && values[one.name]?.trim()) query.set(one.name, values[one.name]!.trim());
  return query.size ? `${filled}?${query}` : filled;
}

const quote = (text: string) => `'${text.replace(/'/g, "'\\''")}'`;

function toCurl(method: string, target: string, body?: string): string {
  const key = storedKey() ? ` -H "Authorization: Bearer $THROUGHLINE_KEY"` : "";
  return `curl -X ${method} ${quote(location.origin + target)}${key}${body === undefined ? "" : ` --json ${quote(body)}`}`;
}

/** Reads a response, which may be a stream that does not end, and reports each part. */
async function readAnswer(response: Response, started: number, report: (answer: Answer) => void) {
  const type = response.headers.get("content-type") ?? "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  const current = (isCut: boolean): Answer => ({ status: response.status, type, text: indent(text, type), ms: performance.now() - started, isCut });
  report(current(false));
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { value: undefined, done: true };
    if (done) return report(current(false));
    text += value;
    if (text.length > MOST) {
      await reader?.cancel();
      text = text.slice(0, MOST);
      return report(current(true));
    }
    if (!type.includes("json")) report(current(false));
  }
}

function indent(text: string, type: string): string {
  if (!type.includes("json")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
