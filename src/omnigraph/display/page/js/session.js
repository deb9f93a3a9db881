/** What the whole page shares: the graph and branch that are shown, the token, and how the connection is. */

const TOKEN_KEY = "omnigraph.token";
const GRAPH_ID = /^[a-zA-Z0-9-]{1,64}$/;

/**
 * Events: `target` when the graph, the branch or the token changed, `connection` when its state did, `token-wanted`
 * when the server asked for one, `open-node` to show a node in Explore.
 */
class Session extends EventTarget {
  constructor() {
    super();
    const query = new URLSearchParams(location.search);
    const wanted = query.get("graph") ?? "";
    this.isGraphNamed = GRAPH_ID.test(wanted);
    this.graph = this.isGraphNamed ? wanted : "default";
    this.branch = query.get("branch") || "main";
    this.connection = "idle";
  }

  /** The token lives as long as the tab, and never in an address. */
  get token() {
    try {
      return sessionStorage.getItem(TOKEN_KEY) ?? "";
    } catch {
      return this.unstoredToken ?? "";
    }
  }

  setToken(token) {
    try {
      if (token) sessionStorage.setItem(TOKEN_KEY, token);
      else sessionStorage.removeItem(TOKEN_KEY);
    } catch {
      this.unstoredToken = token;
    }
    this.#changed();
  }

  /** Show another graph; its main branch, unless another is named. False if the id cannot be one. */
  setGraph(graph, branch = "main") {
    if (!GRAPH_ID.test(graph)) return false;
    if (graph === this.graph && branch === this.branch) return true;
    this.graph = graph;
    this.branch = branch;
    this.#changed();
    return true;
  }

  setBranch(branch) {
    if (branch === this.branch) return;
    this.branch = branch;
    this.#changed();
  }

  setConnection(state) {
    if (state === this.connection) return;
    this.connection = state;
    this.dispatchEvent(new Event("connection"));
  }

  askForToken() {
    this.dispatchEvent(new Event("token-wanted"));
  }

  openNode(type, id) {
    this.dispatchEvent(new CustomEvent("open-node", { detail: { type, id } }));
  }

  #changed() {
    const query = new URLSearchParams({ graph: this.graph, branch: this.branch });
    history.replaceState(null, "", `?${query}${location.hash}`);
    this.dispatchEvent(new Event("target"));
  }
}

export const session = new Session();
