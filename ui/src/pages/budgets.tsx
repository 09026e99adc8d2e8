/** The budgets of keys: spent and reserved amounts of the current period. */

import { useState } from "preact/hooks";
import { ApiError, post } from "../api";
import { compact, dollars, exact, plain } from "../format";
import { useFetch } from "../hooks";
import { Confirm, Empty, ErrorBox, FetchStatus } from "../parts";
import { may } from "../permissions";

interface Budget {
  unit: "micro_usd" | "tokens" | "requests";
  period: "minute" | "day" | "week" | "month" | "total";
  limit: number;
  used: number;
  reserved: number;
  /** The end of the current period, in seconds since 1970; missing if the budget never resets. */
  window_end?: number;
}

interface KeyBudgets {
  key: string;
  label: string;
  soft_limit_percent?: number;
  budgets: Budget[];
}

export function BudgetList() {
  const state = useFetch<{ keys: KeyBudgets[] }>("/v1/throughline/budgets", 5000);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [notice, setNotice] = useState("");
  const reset = async ({ key, label }: KeyBudgets) => {
    setProblem(null);
    try {
      await post(`/v1/throughline/keys/${encodeURIComponent(key)}/reset`, {});
      setNotice(`The budgets of ${label} count from zero.`);
    } catch (error) {
      setProblem(error as ApiError);
    }
    state.reload();
  };
  return (
    <>
      <p class="notice" role="status">{plain(notice)}</p>
      {problem ? <ErrorBox problem={problem} /> : null}
      <FetchStatus state={state} />
      {state.value && !state.value.keys.length ? <Empty title="No budgets">Create or change a key with a budget in dollars or tokens. A call that exceeds a total budget gets status 402, and one that exceeds the budget of a period gets status 429.</Empty> : null}
      <div class="cards">
        {state.value?.keys.map((one) => (
          <article class="card" key={one.key} aria-label={`Budgets of ${plain(one.label)}`} data-id={one.key}>
            <header>
              <strong><bdi>{plain(one.label)}</bdi></strong>
              <code>{plain(one.key)}</code>
            </header>
            {one.budgets.map((budget) => <BudgetMeter budget={budget} soft={one.soft_limit_percent} />)}
            {may("manage_keys") ? <div class="actions"><Confirm label="Reset" question="Count the budgets of this key from zero?" yes="Reset the budgets" act={() => reset(one)} /></div> : null}
          </article>
        ))}
      </div>
    </>
  );
}

const PERIODS = { minute: "per minute", day: "per day", week: "per week", month: "per month", total: "in total" };

/** A bar with the spent and the reserved share of a budget. */
function BudgetMeter({ budget, soft }: { budget: Budget; soft?: number }) {
  const { unit, period, limit, used, reserved, window_end: end } = budget;
  const show = unit === "micro_usd" ? (amount: number) => dollars(amount / 1e6) : compact;
  const noun = unit === "micro_usd" ? "" : ` ${unit}`;
  const share = (amount: number) => (limit > 0 ? Math.min(1, amount / limit) : 1);
  const tone = used >= limit ? "full" : share(used + reserved) * 100 > (soft ?? 80) ? "near" : "";
  const label = unit === "micro_usd" ? "Cost" : unit === "tokens" ? "Tokens" : "Requests";
  return (
    <div class="meter" data-unit={unit}>
      <div>
        <span>{label} {PERIODS[period]}</span>
        <span class="number">{show(used)} of {show(limit)}{noun}</span>
      </div>
      <div class={`bar ${tone}`} role="meter" aria-label={`${label} ${PERIODS[period]}`} aria-valuemin={0} aria-valuemax={limit} aria-valuenow={Math.min(used, limit)}>
        <i style={{ width: `${share(used) * 100}%` }} />
        <i class="reserved" style={{ width: `${Math.min(1 - share(used), share(reserved)) * 100}%` }} />
      </div>
      <small class="dim">
        {show(reserved)}{noun} reserved by calls in progress{soft ? ` · alert at ${soft} %` : ""}{end ? ` · resets ${exact(new Date(end * 1000).toISOString())}` : ""}
      </small>
    </div>
  );
}
