/** Nodes and edges on a cytoscape canvas. It knows how they look and where they are, not what they mean. */

import { separate } from "./spacing.js";

const LAYOUTS = {
  cose: {
    name: "cose",
    animate: false,
    randomize: false,
    nodeRepulsion: () => 9000,
    nodeOverlap: 10,
    idealEdgeLength: () => 60,
    componentSpacing: 60,
    gravity: 1.2,
    numIter: 1500,
  },
  breadthfirst: { name: "breadthfirst", animate: false, directed: true, spacingFactor: 1 },
  concentric: { name: "concentric", animate: false, minNodeSpacing: 20 },
};
const DOUBLE_MS = 350;
const MAX_FIT = 1.3;
/** What a node covers together with its name. */
const FOOTPRINT = { width: 116, height: 58 };

export const LAYOUT_NAMES = [["cose", "Organic"], ["breadthfirst", "Layers"], ["concentric", "Rings"]];

/** The id of a node on the canvas. Names of types have no slash, so no two nodes share one. */
export function keyOf({ type, id }) {
  return `${type}/${id}`;
}

export class Canvas {
  #graph;
  #layout = "cose";
  #colourOf;

  /** `onChoose(key or null)`, `onChooseEdge(data)`, `onExpand(key)`; `colourOf(type)` gives the number of a colour. */
  constructor(container, { colourOf, onChoose, onChooseEdge, onExpand }) {
    this.#colourOf = colourOf;
    this.#graph = window.cytoscape({
      container,
      style: styles(container),
      minZoom: 0.1,
      maxZoom: 4,
      boxSelectionEnabled: false,
      selectionType: "single",
    });
    this.#listen({ onChoose, onChooseEdge, onExpand });
    this.restyle = () => {
      if (!container.isConnected) this.destroy();
      else this.#graph.style(styles(container));
    };
    window.addEventListener("themechange", this.restyle);
    // The canvas of a hidden view has no size; it gets one when it is shown.
    this.sizes = new ResizeObserver(() => {
      if (!container.isConnected) this.destroy();
      else this.#graph.resize();
    });
    this.sizes.observe(container);
  }

  destroy() {
    window.removeEventListener("themechange", this.restyle);
    this.sizes.disconnect();
    this.#graph.destroy();
  }

  #listen({ onChoose, onChooseEdge, onExpand }) {
    let last = { key: null, at: 0 };
    this.#graph.on("tap", "node", ({ target }) => {
      const key = target.id();
      const isDouble = last.key === key && performance.now() - last.at < DOUBLE_MS;
      last = { key: isDouble ? null : key, at: performance.now() };
      if (isDouble) onExpand(key);
      else onChoose(key);
    });
    this.#graph.on("tap", "edge", ({ target }) => onChooseEdge(target.data()));
    this.#graph.on("tap", ({ target }) => {
      if (target === this.#graph) onChoose(null);
    });
  }

  /** Add what is not there yet, around the node `near` if given, and arrange it. Gives how many nodes are new. */
  add(nodes, edges, near = null) {
    const fresh = nodes.filter((node) => !this.has(keyOf(node)));
    const unique = new Map(fresh.map((node) => [keyOf(node), node]));
    const centre = near && this.has(near) ? this.#node(near).position() : { x: 0, y: 0 };
    const placed = [...unique.values()].map((node, place) => this.#element(node, ring(centre, place, unique.size)));
    this.#graph.batch(() => {
      this.#graph.add(placed);
      for (const edge of edges) this.#addEdge(edge);
    });
    if (placed.length) this.arrange();
    return placed.length;
  }

  #element(node, position) {
    const name = node.label ?? node.id;
    const data = { id: keyOf(node), type: node.type, label: name };
    return { group: "nodes", data, classes: `type-${this.#colourOf(node.type)}`, position };
  }

  #addEdge({ type, from, to, number = 1, properties = {} }) {
    const [source, target] = [keyOf(from), keyOf(to)];
    const id = JSON.stringify([type, source, target, number]);
    if (!this.has(source) || !this.has(target) || this.has(id)) return;
    this.#graph.add({ group: "edges", data: { id, source, target, type, label: type, properties } });
  }

  has(key) {
    return this.#graph.getElementById(key).nonempty();
  }

  #node(key) {
    return this.#graph.getElementById(key);
  }

  /** All nodes, by type and name: `{key, type, label, isPinned}`. */
  nodes() {
    return this.#graph
      .nodes()
      .map((node) => ({ key: node.id(), type: node.data("type"), label: node.data("label"), isPinned: node.locked() }))
      .sort((one, other) => one.type.localeCompare(other.type, "en") || one.label.localeCompare(other.label, "en"));
  }

  edgeCount() {
    return this.#graph.edges().length;
  }

  rename(key, label) {
    this.#node(key).data("label", label);
  }

  choose(key) {
    this.#graph.elements().unselect();
    if (key) this.#node(key).select();
  }

  remove(key) {
    this.#node(key).remove();
  }

  clear() {
    this.#graph.elements().remove();
  }

  /** A pinned node stays where it is when the others are arranged. */
  pin(key, isPinned) {
    const node = this.#node(key);
    if (isPinned) node.lock().addClass("pinned");
    else node.unlock().removeClass("pinned");
  }

  arrange(layout = this.#layout) {
    this.#layout = layout;
    if (this.#graph.nodes().empty()) return;
    this.#graph.layout({ ...LAYOUTS[layout], fit: false }).run();
    this.#makeRoom();
    this.fit();
  }

  /** Layouts know nothing about names under nodes, nor about the shape of the screen. */
  #makeRoom() {
    const nodes = this.#graph.nodes();
    const { w: width, h: height } = nodes.boundingBox();
    const isHigh = height > width;
    const isScreenHigh = this.#graph.height() > this.#graph.width();
    const isTurned = isHigh !== isScreenHigh && this.#layout === "cose" && nodes.every((node) => !node.locked());
    const boxes = nodes.map((node) => {
      const { x, y } = node.position();
      return { node, x: isTurned ? y : x, y: isTurned ? x : y, ...FOOTPRINT, isFixed: node.locked() };
    });
    separate(boxes, 6);
    this.#graph.batch(() => {
      for (const { node, x, y, isFixed } of boxes) if (!isFixed) node.position({ x, y });
    });
  }

  fit() {
    this.#graph.resize();
    this.#graph.fit(undefined, 40);
    // Few nodes would fill the whole canvas.
    if (this.#graph.zoom() > MAX_FIT) this.#graph.zoom(MAX_FIT);
    this.#graph.center();
  }
}

function ring({ x, y }, place, count) {
  const angle = (2 * Math.PI * place) / Math.max(count, 1);
  const radius = count === 1 ? 90 : 60 + 9 * count;
  return { x: x + radius * Math.cos(angle), y: y + radius * Math.sin(angle) };
}

/** The look of nodes and edges, in the colours that the style sheet has at this moment. */
function styles(container) {
  const probe = document.createElement("span");
  container.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const found = [
    {
      selector: "node",
      style: {
        width: 30,
        height: 30,
        label: "data(label)",
        color: colour("text"),
        "font-size": 11,
        "text-wrap": "ellipsis",
        "text-max-width": "110px",
        "text-valign": "bottom",
        "text-margin-y": 5,
        "text-background-color": colour("surface"),
        "text-background-opacity": 0.8,
        "text-background-padding": "2px",
        "min-zoomed-font-size": 5,
      },
    },
    {
      selector: "edge",
      style: {
        width: 1.5,
        "line-color": colour("line-strong"),
        "target-arrow-color": colour("line-strong"),
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.9,
        "curve-style": "bezier",
        label: "data(label)",
        "font-size": 9,
        color: colour("muted"),
        "text-rotation": "autorotate",
        "text-background-color": colour("surface"),
        "text-background-opacity": 0.8,
        "text-background-padding": "1px",
        "min-zoomed-font-size": 8,
      },
    },
    ...Array.from({ length: 10 }, (_, number) => ({
      selector: `node.type-${number}`,
      style: { "background-color": colour(`type-${number}`) },
    })),
    { selector: "node.pinned", style: { shape: "round-rectangle" } },
    { selector: "node:selected", style: { "border-width": 4, "border-color": colour("accent"), "font-weight": "bold" } },
    {
      selector: "edge:selected",
      style: { width: 3, "line-color": colour("accent"), "target-arrow-color": colour("accent") },
    },
  ];
  probe.remove();
  return found;
}
