/** Sign-in at an identity provider, or with an API key, which stays in this browser. */

import { useState } from "preact/hooks";
import { ApiError, clearKey, get, storeKey } from "../api";
import { useTitle } from "../hooks";
import { Emblem, ErrorBox } from "../parts";
import { ProviderSignIn } from "../session";

export function SignIn({ done }: { done: () => void }) {
  useTitle("Sign in");
  const [secret, setSecret] = useState("");
  const [permanent, setPermanent] = useState(false);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    storeKey(secret.trim(), permanent);
    try {
      await get("/v1/throughline/usage");
      done();
    } catch (error) {
      clearKey();
      setProblem((error as ApiError).status === 401 ? new ApiError(401, "This key is not valid for this gateway or was revoked.") : (error as ApiError));
    }
  };
  return (
    <main class="signin">
      <form onSubmit={submit}>
        <Emblem />
        <h1>Throughline</h1>
        <p>Sign in to use this gateway. An API key is stored only in this browser.</p>
        <ProviderSignIn />
        {problem ? <ErrorBox problem={problem} /> : null}
        <label>
          Key
          <input type="password" name="key" value={secret} placeholder="tl_…" autocomplete="off" spellcheck={false} required onInput={(event) => setSecret(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={permanent} onChange={(event) => setPermanent(event.currentTarget.checked)} />
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
