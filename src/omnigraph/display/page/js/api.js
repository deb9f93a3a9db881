/** The server's HTTP interface, as functions. Every failure is an `ApiError`, except that of a superseded request. */

import { session } from "./session.js";

/** A request that failed: `status` 0 when no answer came, `body` as the server sent it. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.error ?? `The server answered with status ${status}.`);
    this.name = "ApiError";
    this.status = status;
    this.body = body;
    this.diagnostics = Array.isArray(body.diagnostics) ? body.diagnostics : [];
  }
}

/** Whether an error only says that a newer request took over. */
export function isSuperseded(error) {
  return error?.name === "AbortError";
}

/** The one request of its kind that counts: starting another aborts it. */
export class Latest {
  #controller = null;

  /** The signal for a new request. */
  begin() {
    this.cancel();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }

  cancel() {
    this.#controller?.abort();
    this.#controller = null;
  }
}

async function call(path, { method = "GET", query = {}, body, signal } = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const { token } = session;
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  let text;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
    text = await response.text();
  } catch (error) {
    if (isSuperseded(error)) throw error;
    session.setConnection("unreachable");
    throw new ApiError(0, { error: "Is the server running, and is this device connected? The page tries again." });
  }
  const content = parse(text);
  if (response.ok) {
    session.setConnection("connected");
    return content;
  }
  session.setConnection(response.status === 401 ? "unauthorized" : "connected");
  throw new ApiError(response.status, content ?? {});
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // an answer of something between the page and the server
  }
}

function nested(path, options) {
  return call(`graphs/${encodeURIComponent(session.graph)}/${path}`, options);
}

function on(branchOrSnapshot) {
  return branchOrSnapshot.snapshot ? { snapshot: branchOrSnapshot.snapshot } : { branch: session.branch };
}

export const api = {
  health: (signal) => call("healthz", { signal }),
  graphs: (signal) => call("graphs", { signal }),
  branches: (signal) => nested("branches", { signal }),
  schema: (signal) => nested("schema", { signal }),
  storedQueries: (signal) => nested("queries", { signal }),
  log: (signal) => nested("log", { signal }),

  /** Run a read: `{query, name?, params?, first?}`. */
  query: (request, signal) => nested("query", { method: "POST", body: { ...request, branch: session.branch }, signal }),

  explain: (request, signal) =>
    nested("explain", { method: "POST", body: { ...request, branch: session.branch }, signal }),

  /** Run a stored read, and take its first rows. */
  invoke: (name, { params, first }, signal) =>
    nested(`queries/${encodeURIComponent(name)}`, {
      method: "POST",
      body: { params, first, branch: session.branch },
      signal,
    }),

  /** One entity, or null; at the head of the shown branch, or at a `snapshot`. */
  entity: async (typeKey, id, { snapshot, signal } = {}) => {
    const answer = await nested("entity", { query: { type: typeKey, id, ...on({ snapshot }) }, signal });
    return answer.entity;
  },

  changes: (commitId, { pageToken, limit, signal } = {}) =>
    nested(`commits/${encodeURIComponent(commitId)}/changes`, { query: { limit, page_token: pageToken }, signal }),

  diff: (from, to, { pageToken, limit, signal } = {}) =>
    nested("diff", { query: { from, to, limit, page_token: pageToken }, signal }),
};
