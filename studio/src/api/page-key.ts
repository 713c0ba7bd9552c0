// The page's half of a browser session. The other half is a cookie, which the browser sends to every port of the host; this one
// is kept for this origin and sent in a header, so that the cookie alone is of no use to another server.

const STORAGE_NAME = 'stepback.page-key';
let pageKey: string | null = null;

/** Takes the key out of the address that signing in leads to, before anything else reads the address. */
export function adoptPageKey() {
  const match = /^#page=([0-9a-f]{64})$/.exec(window.location.hash);
  try {
    if (match?.[1]) window.localStorage.setItem(STORAGE_NAME, match[1]);
    pageKey = window.localStorage.getItem(STORAGE_NAME);
  } catch {
    // Without storage, the key lasts as long as the page.
    pageKey = match?.[1] ?? pageKey;
  }
  if (match) window.history.replaceState(window.history.state, '', window.location.pathname + window.location.search);
}

/** The headers that authorise a request of this page. Another tab may have signed in since. */
export function sessionHeaders(): Record<string, string> {
  try {
    pageKey = window.localStorage.getItem(STORAGE_NAME) ?? pageKey;
  } catch {
    // As above.
  }
  return pageKey ? { 'x-stepback-page': pageKey } : {};
}
