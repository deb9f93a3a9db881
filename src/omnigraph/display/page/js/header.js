/** The head of the page: which graph and branch, the token, the theme, and how the connection is. */

import { ApiError, api, isSuperseded, Latest } from "./api.js";
import { el, fill, setOptions } from "./dom.js";
import { session } from "./session.js";

const RETRY_MS = 5000;
const CONNECTION_TEXT = {
  idle: "connecting",
  connected: "connected",
  unauthorized: "token needed",
  unreachable: "no answer",
};

const AWAY = "The server does not answer. What you see may be old; trying again every few seconds.";

const element = (id) => document.getElementById(id);

/** Wire the header. `onBack` is called when a server that was gone answers again. */
export function prepareHeader(onBack) {
  prepareTarget();
  prepareToken();
  prepareTheme();
  prepareConnection(onBack);
}

// ---- graph and branch

function prepareTarget() {
  const graph = element("graph");
  const branch = element("branch");
  const branches = new Latest();

  graph.value = session.graph;
  graph.addEventListener("change", () => {
    const isKnown = session.setGraph(graph.value.trim());
    graph.setCustomValidity(isKnown ? "" : "A graph id has up to 64 letters, digits and hyphens.");
    graph.reportValidity();
  });
  graph.addEventListener("input", () => graph.setCustomValidity(""));
  branch.addEventListener("change", () => session.setBranch(branch.value));

  async function readBranches() {
    try {
      const answer = await api.branches(branches.begin());
      showBranches(branch, answer.branches);
    } catch (error) {
      if (isSuperseded(error)) return;
      if (!(error instanceof ApiError)) throw error;
      showBranches(branch, []); // the view tells what is wrong
    }
  }

  session.addEventListener("target", () => {
    graph.value = session.graph;
    readBranches();
  });
  listGraphs().then(readBranches);
}

function showBranches(branch, names) {
  const known = names.includes(session.branch) ? names : [session.branch, ...names];
  setOptions(branch, known.map((name) => [name, name]), session.branch);
}

/** Offer the graphs of the server, where that is allowed; without a wish, the first one is shown. */
async function listGraphs() {
  let ids = [];
  try {
    const answer = await api.graphs();
    ids = answer.graphs.map(({ graph_id: id }) => id);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // mostly not allowed: the id can be typed
  }
  fill(element("graphs"), ids.map((id) => el("option", { value: id })));
  if (ids.length && !session.isGraphNamed && !ids.includes(session.graph)) session.setGraph(ids[0]);
}

// ---- token

function prepareToken() {
  const dialog = element("token-dialog");
  const input = element("token");

  function open() {
    if (dialog.open) return;
    input.value = "";
    const isWrong = session.connection === "unauthorized" && session.token;
    element("token-reason").textContent = isWrong
      ? "The server does not know this token. Enter another one."
      : "Sent to this server with every request, and forgotten when the tab is closed.";
    dialog.showModal();
    input.focus();
  }

  function show() {
    element("token-button").textContent = session.token ? "Token ✓" : "Token";
  }

  element("token-button").addEventListener("click", open);
  session.addEventListener("token-wanted", open);
  session.addEventListener("target", show);
  element("token-cancel").addEventListener("click", () => dialog.close());
  element("token-forget").addEventListener("click", () => {
    dialog.close();
    session.setToken("");
  });
  element("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close();
    session.setToken(input.value.trim());
    input.value = "";
    listGraphs();
  });
  show();
}

// ---- theme

function prepareTheme() {
  const toggle = element("theme-button");
  const { omnigraphTheme: theme } = window;

  function show() {
    const other = theme.current() === "dark" ? "light" : "dark";
    toggle.setAttribute("aria-label", `Switch to ${other} colours`);
    toggle.title = `Switch to ${other} colours`;
  }

  toggle.addEventListener("click", () => theme.choose(theme.current() === "dark" ? "light" : "dark"));
  window.addEventListener("themechange", show);
  show();
}

// ---- connection

function prepareConnection(onBack) {
  const state = element("connection");
  const banner = element("banner");
  let timer = null;
  let isAsked = false;

  async function knock() {
    try {
      await api.health();
      onBack();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 0) timer = setTimeout(knock, RETRY_MS);
    }
  }

  session.addEventListener("connection", () => {
    const { connection } = session;
    state.dataset.state = connection;
    state.textContent = CONNECTION_TEXT[connection];
    banner.hidden = connection !== "unreachable";
    banner.textContent = banner.hidden ? "" : AWAY;
    clearTimeout(timer);
    if (connection === "unreachable") timer = setTimeout(knock, RETRY_MS);
    // Ask once by itself; later the views offer a button, so that a refused token does not trap anybody in a dialog.
    if (connection === "unauthorized" && !isAsked) {
      isAsked = true;
      session.askForToken();
    }
  });
}
