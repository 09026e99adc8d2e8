/** Sign-in: a key of the gateway, which stays in this browser and goes nowhere else. */

import { useState } from "preact/hooks";
import { forget, get, Problem, remember } from "../api";
import { useTitle } from "../hooks";
import { Trouble } from "../parts";

export function SignIn({ done }: { done: () => void }) {
  useTitle("Sign in");
  const [secret, setSecret] = useState("");
  const [lasting, setLasting] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    remember(secret.trim(), lasting);
    try {
      await get("/v1/throughline/usage");
      done();
    } catch (error) {
      forget();
      setProblem((error as Problem).status === 401 ? new Problem(401, "That is no key of this gateway, or it was revoked.") : (error as Problem));
    }
  };
  return (
    <main class="signin">
      <form onSubmit={submit}>
        <svg viewBox="0 0 120 40" aria-hidden="true">
          <path d="M4 28c20 0 20-18 56-18s36 18 56 18" />
          <circle cx="60" cy="10" r="4" />
        </svg>
        <h1>Throughline</h1>
        <p>This gateway needs a key. It stays in this browser.</p>
        {problem ? <Trouble problem={problem} /> : null}
        <label>
          Key
          <input type="password" name="key" value={secret} placeholder="tl_…" autocomplete="off" spellcheck={false} required onInput={(event) => setSecret(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={lasting} onChange={(event) => setLasting(event.currentTarget.checked)} />
          Keep me signed in on this machine
        </label>
        <button class="primary">Sign in</button>
        <p class="hint">
          No key yet? <code>throughline keys create --label me</code>
        </p>
      </form>
    </main>
  );
}
