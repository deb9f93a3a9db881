/**
 * A canvas with all that belongs to it: a legend, a list of its nodes for the keyboard, and the details of the chosen
 * one with its neighbours. Used by the Query and the Explore view.
 */

import { ApiError, isSuperseded, Latest } from "./api.js";
import { Canvas, keyOf, LAYOUT_NAMES } from "./canvas.js";
import { announce, button, el, field, fill, select } from "./dom.js";
import { edgeDetails, nodeDetails } from "./node_details.js";
import { forEachAtOnce, readNeighbours, readNode, STEP } from "./neighbourhood.js";
import { empty, failure, loading } from "./states.js";
import { counted } from "./values.js";

/** Gives `add(nodes, edges)`, `open(node)`, `say(text)` and `fit()`. */
export function createGraphPanel(root, schema) {
  const reading = new Latest();
  const stage = el("div", {
    class: "stage canvas",
    role: "img",
    "aria-label": "Graph; its nodes are listed beside it",
  });
  const hint = el("p", { class: "canvas-hint", text: "Double-click or double-tap a node to see its neighbours." });
  const legend = el("ul", { class: "legend", "aria-label": "Types" });
  const status = el("span", { class: "count", role: "status" });
  const listing = el("ul", { class: "plain node-list" });
  const details = el("div", { class: "details", "aria-live": "polite" });
  /** How many neighbours over which link are wanted, by node and link. */
  const wanted = new Map();
  let chosen = null;

  fill(
    root,
    el(
      "div",
      { class: "bar" },
      field("Layout", select(LAYOUT_NAMES, { onChange: (name) => canvas.arrange(name) })),
      button("Fit", () => canvas.fit(), { class: "quiet" }),
      button("Clear", clear, { class: "quiet" }),
      status,
    ),
    el(
      "div",
      { class: "split" },
      el("div", { class: "stage-frame" }, stage, legend, hint),
      el(
        "aside",
        { class: "panel", "aria-label": "Chosen node" },
        details,
        el("details", { class: "nodes" }, el("summary", { text: "Nodes on the canvas" }), listing),
      ),
    ),
  );

  const canvas = new Canvas(stage, {
    colourOf: (type) => schema.colour(type),
    onChoose: (key) => choose(key),
    onChooseEdge: (edge) => fill(details, edgeDetails(edge)),
    onExpand: (key) => expandAll(key),
  });
  choose(null);
  refresh();

  // ---- what is on the canvas

  function add(nodes, edges = [], near = null) {
    const count = canvas.add(nodes, edges, near);
    refresh();
    return count;
  }

  function refresh() {
    const nodes = canvas.nodes();
    const types = [...new Set(nodes.map(({ type }) => type))];
    hint.hidden = !nodes.length;
    status.textContent = nodes.length ? `${counted(nodes.length, "node")}, ${counted(canvas.edgeCount(), "edge")}` : "";
    fill(
      legend,
      types.map((type) => {
        const count = nodes.filter((node) => node.type === type).length;
        return el("li", {}, el("span", { class: `dot type-${schema.colour(type)}` }), `${type} ${count}`);
      }),
    );
    fill(
      listing,
      nodes.map(({ key, type, label, isPinned }) =>
        el(
          "li",
          {},
          button(isPinned ? `${label} (pinned)` : label, () => choose(key), {
            class: "node-item",
            title: type,
            "aria-pressed": String(key === chosen?.key),
          }),
        ),
      ),
    );
    for (const [place, item] of [...listing.children].entries()) {
      item.firstChild.prepend(el("span", { class: `dot type-${schema.colour(nodes[place].type)}` }));
    }
  }

  function clear() {
    canvas.clear();
    wanted.clear();
    choose(null);
    refresh();
  }

  // ---- the chosen node

  async function choose(key) {
    const signal = reading.begin();
    chosen = null;
    canvas.choose(key);
    if (key === null) {
      fill(details, empty("Nothing is chosen", "Choose a node or an edge to see its values."));
      return null;
    }
    const { type, id } = parts(key);
    fill(details, loading("Reading the node…"));
    try {
      const node = await readNode(type, id, signal);
      if (node === null) {
        fill(details, empty("Not on this branch", `There is no ${type} with the id ${id} at its head.`));
        return null;
      }
      chosen = { key, node };
      const label = schema.label(type);
      if (label && node.properties[label]) canvas.rename(key, node.properties[label]);
      showChosen();
      refresh();
      return node;
    } catch (error) {
      tell(error, () => choose(key));
      return null;
    }
  }

  function showChosen() {
    const { key, node } = chosen;
    const isPinned = canvas.nodes().some((shown) => shown.key === key && shown.isPinned);
    fill(
      details,
      nodeDetails(schema, node, {
        isPinned,
        shownOver: (link) => wanted.get(linkKey(key, link)) ?? null,
        onExpandAll: () => expandAll(key),
        onExpand: (link) => expand(key, [link]),
        onPin: () => {
          canvas.pin(key, !isPinned);
          showChosen();
          refresh();
        },
        onHide: () => {
          canvas.remove(key);
          choose(null);
          refresh();
        },
      }),
    );
  }

  // ---- neighbours

  async function expandAll(key) {
    await expand(key, schema.links(parts(key).type));
  }

  /** Show neighbours over some links: the first time 25 each, then 25 more each. */
  async function expand(key, links) {
    const node = chosen?.key === key ? chosen.node : await choose(key);
    if (node === null) return;
    const signal = reading.begin();
    let added = 0;
    say("Reading neighbours…");
    try {
      await forEachAtOnce(links, async (link) => {
        const place = linkKey(key, link);
        const limit = (wanted.get(place)?.limit ?? 0) + STEP;
        const found = await readNeighbours(schema, node, link, limit, signal);
        wanted.set(place, { limit, count: found.nodes.length, hasMore: found.hasMore });
        added += add(found.nodes, found.edges, key);
      });
    } catch (error) {
      tell(error, () => expand(key, links));
      return;
    }
    if (chosen?.key === key) showChosen(); // another one may have been chosen meanwhile
    refresh();
    announce(added ? counted(added, "new node") : "No new nodes");
  }

  // ---- telling

  function tell(error, retry) {
    refresh();
    if (isSuperseded(error)) return;
    if (!(error instanceof ApiError)) throw error;
    fill(details, failure(error, retry));
  }

  function say(text) {
    status.textContent = text;
  }

  return {
    add,
    say,
    fit: () => canvas.fit(),
    /** Show a node, also one that is not on the canvas yet. */
    open: async (node) => {
      add([node]);
      await choose(keyOf(node));
    },
  };
}

function linkKey(key, { edge, direction }) {
  return JSON.stringify([key, edge.name, direction]);
}

function parts(key) {
  const slash = key.indexOf("/");
  return { type: key.slice(0, slash), id: key.slice(slash + 1) };
}
