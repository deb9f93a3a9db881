/** The schema as a drawing: a box per node type, a line per edge type; both can be chosen with mouse and keyboard. */

import { button, el, fill, svg } from "./dom.js";
import { panAndZoom } from "./pan_zoom.js";
import { line, placedBoxes } from "./schema_layout.js";

const MARGIN = 40;

/** Draw into an element. `onChoose(kind, type)` is called with "node" or "edge" and the chosen type. */
export function drawSchema(stage, schema, onChoose) {
  const boxes = placedBoxes(schema);
  const byName = new Map(boxes.map((box) => [box.node.name, box]));
  const drawing = svg("g");
  const image = svg(
    "svg",
    { class: "diagram", role: "group", "aria-label": "Schema diagram" },
    svg("defs", {}, arrowHead()),
    drawing,
  );

  function choose(kind, declared, element) {
    for (const other of image.querySelectorAll(".chosen")) other.classList.remove("chosen");
    element.classList.add("chosen");
    onChoose(kind, declared);
  }

  const lines = edgeLines(schema, byName).map(({ edge, drawn }) => {
    const name = `Edge ${edge.name} from ${edge.from} to ${edge.to}`;
    return choosable(edgeShape(edge, drawn), name, (element) => choose("edge", edge, element));
  });
  const shapes = boxes.map((box) => {
    const { node } = box;
    const shape = boxShape(box, schema.colour(node.name));
    return choosable(shape, `Node type ${node.name}`, (element) => choose("node", node, element));
  });
  drawing.append(...lines, ...shapes);

  const view = panAndZoom(image, drawing, bounds(boxes));
  fill(
    stage,
    image,
    el(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      button("+", () => view.zoom(1.25), { "aria-label": "Zoom in" }),
      button("−", () => view.zoom(0.8), { "aria-label": "Zoom out" }),
      button("Fit", () => view.fit()),
    ),
  );
  view.fit();
}

function edgeLines(schema, byName) {
  const known = schema.edges.filter(({ from, to }) => byName.has(from) && byName.has(to));
  const groups = new Map();
  for (const edge of known) {
    const pair = [edge.from, edge.to].sort().join(" ");
    groups.set(pair, [...(groups.get(pair) ?? []), edge]);
  }
  return [...groups.values()].flatMap((edges) =>
    edges.map((edge, turn) => {
      // A line that runs the other way bends to the other side: both would lie on each other otherwise.
      const place = edge.from <= edge.to ? turn : edges.length - 1 - turn;
      return { edge, drawn: line(byName.get(edge.from), byName.get(edge.to), place, edges.length) };
    }),
  );
}

function boxShape({ node, lines, hidden, width, height, x, y }, colour) {
  const left = x - width / 2;
  const top = y - height / 2;
  return svg(
    "g",
    {
      class: `box type-${colour}`,
      transform: `translate(${left.toFixed(1)} ${top.toFixed(1)})`,
      data: { type: node.name },
    },
    svg("rect", { class: "box-body", width, height, rx: 8 }),
    svg("path", { class: "box-head", d: `M0 34 V8 Q0 0 8 0 H${width - 8} Q${width} 0 ${width} 8 V34 Z` }),
    svg("text", { class: "box-title", x: 12, y: 22, text: node.name }),
    lines.map(({ name, type }, place) => [
      svg("text", { class: "box-name", x: 12, y: 54 + place * 19, text: name }),
      svg("text", { class: "box-type", x: width - 12, y: 54 + place * 19, "text-anchor": "end", text: type }),
    ]),
    hidden ? svg("text", { class: "box-type", x: 12, y: 54 + lines.length * 19, text: `… ${hidden} more` }) : null,
  );
}

function edgeShape(edge, { path, label }) {
  const isLoop = edge.from === edge.to;
  return svg(
    "g",
    { class: "link", data: { type: edge.name } },
    svg("path", { class: "link-reach", d: path }),
    svg("path", { class: "link-line", d: path, "marker-end": "url(#arrow)" }),
    svg("text", {
      class: "link-name",
      x: label.x,
      y: label.y + 4,
      "text-anchor": isLoop ? "start" : "middle",
      text: edge.name,
    }),
  );
}

function arrowHead() {
  return svg(
    "marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
    svg("path", { class: "arrow", d: "M0 0 L8 4 L0 8 Z" }),
  );
}

function choosable(element, label, choose) {
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "button");
  element.setAttribute("aria-label", label);
  element.addEventListener("click", () => choose(element));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(element);
  });
  return element;
}

function bounds(boxes) {
  const left = Math.min(...boxes.map(({ x, width }) => x - width / 2)) - MARGIN;
  const top = Math.min(...boxes.map(({ y, height }) => y - height / 2)) - MARGIN;
  const right = Math.max(...boxes.map(({ x, width }) => x + width / 2)) + MARGIN + 60; // room for loops
  const bottom = Math.max(...boxes.map(({ y, height }) => y + height / 2)) + MARGIN;
  return { left, top, width: right - left, height: bottom - top };
}
