/** The session of a person who signed in at an identity provider. */

import { post } from "./api";
import { useFetch } from "./hooks";

interface SessionState {
  /** The identity provider; missing if people sign in only with a key. */
  provider?: { name: string };
  user?: { id: string; email?: string; name?: string; role: string; tenant: string };
}

const useSession = () => useFetch<SessionState>("/v1/throughline/session");

/** A link to the identity provider, which returns to the current page of the console. */
export function ProviderSignIn() {
  const provider = useSession().value?.provider;
  if (!provider) return null;
  const page = location.hash.startsWith("#/") ? `?page=${encodeURIComponent(location.hash)}` : "";
  return (
    <>
      <a class="button primary" href={`/v1/throughline/session/start${page}`}>Sign in with {provider.name}</a>
      <p class="or">or with an API key</p>
    </>
  );
}

/** The signed-in person, and a button to sign out. */
export function SignedInUser() {
  const user = useSession().value?.user;
  if (!user) return null;
  const signOut = async () => {
    await post("/v1/throughline/session/end", {});
    dispatchEvent(new Event("throughline:signin"));
  };
  return (
    <>
      <p class="who" title={user.id}>{user.email ?? user.name ?? user.id}, {user.role}</p>
      <button class="quiet" onClick={signOut}>Sign out</button>
    </>
  );
}
