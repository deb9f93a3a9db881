/** Where the boxes and lines of a schema diagram go. Pure: sizes in, places out, always the same for the same schema. */

import { typeText } from "./schema_model.js";
import { separate } from "./spacing.js";

const CHARACTER = 7.2;
const LINE = 19;
const HEAD = 34;
const MAX_LINES = 8;
const GAP = 70;

/** Boxes of the node types: `{node, lines, hidden, width, height, x, y}`, with x and y in the middle. */
export function placedBoxes(schema) {
  const boxes = schema.nodes.map(box);
  const graph = window.cytoscape({
    headless: true,
    styleEnabled: true,
    elements: [
      ...boxes.map(({ node }, place) => ({ data: { id: node.name }, position: start(place, boxes.length) })),
      ...schema.edges
        .filter(({ from, to }) => from !== to)
        .map(({ name, from, to }) => ({ data: { id: `edge ${name}`, source: from, target: to } })),
    ],
    style: boxes.map(({ node, width, height }) => ({
      selector: `node[id = "${node.name}"]`,
      style: { width, height, shape: "rectangle" },
    })),
  });
  graph
    .layout({
      name: "cose",
      animate: false,
      randomize: false,
      fit: false,
      idealEdgeLength: () => 130,
      nodeRepulsion: () => 90000,
      nodeOverlap: 60,
      gravity: 0.6,
      numIter: 1500,
      componentSpacing: 80,
    })
    .run();
  for (const placed of boxes) Object.assign(placed, graph.getElementById(placed.node.name).position());
  graph.destroy();
  separate(boxes, GAP);
  return boxes;
}

function box(node) {
  const shown = node.properties.length > MAX_LINES ? node.properties.slice(0, MAX_LINES - 1) : node.properties;
  const hidden = node.properties.length - shown.length;
  const lines = shown.map((property) => ({ name: property.name, type: shortened(typeText(property)) }));
  const widest = Math.max(...lines.map(({ name, type }) => name.length + type.length + 3), node.name.length + 6, 14);
  const rows = lines.length + (hidden ? 1 : 0);
  return { node, lines, hidden, width: widest * CHARACTER + 20, height: HEAD + rows * LINE + (rows ? 12 : 0) };
}

function shortened(type) {
  return type.length > 18 ? `${type.slice(0, 16)}…` : type;
}

/** Places to start from: around a circle, wider than high, as screens are. */
function start(place, count) {
  const angle = (2 * Math.PI * place) / count;
  const radius = 90 * Math.sqrt(count) + 60;
  return { x: 1.5 * radius * Math.cos(angle), y: radius * Math.sin(angle) };
}

/**
 * The line of an edge: `{path, label: {x, y}}`. Of several lines between the same boxes, `turn` of `turns` bends each
 * one differently; an edge from a type to itself is a loop at the side of its box.
 */
export function line(from, to, turn, turns) {
  if (from === to) return loop(from, turn);
  const bend = (turn - (turns - 1) / 2) * 56;
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = Math.hypot(dx, dy) || 1;
  const middle = { x: (from.x + to.x) / 2 - (dy / length) * bend, y: (from.y + to.y) / 2 + (dx / length) * bend };
  const begin = border(from, middle);
  const end = border(to, middle);
  const label = { x: (begin.x + 2 * middle.x + end.x) / 4, y: (begin.y + 2 * middle.y + end.y) / 4 };
  return { path: `M${point(begin)} Q${point(middle)} ${point(end)}`, label };
}

function loop(box, turn) {
  const right = box.x + box.width / 2;
  const top = box.y - box.height / 2 + 12 + turn * 44;
  const reach = 46;
  const [begin, out, back, end] = [
    { x: right, y: top },
    { x: right + reach, y: top },
    { x: right + reach, y: top + 28 },
    { x: right, y: top + 28 },
  ].map(point);
  return {
    path: `M${begin} C${out} ${back} ${end}`,
    label: { x: right + reach + 4, y: top + 14 },
  };
}

/** Where the way from the middle of a box to a point leaves the box. */
function border(box, towards) {
  const dx = towards.x - box.x;
  const dy = towards.y - box.y;
  const share = Math.min(
    dx ? (box.width / 2 + 3) / Math.abs(dx) : Infinity,
    dy ? (box.height / 2 + 3) / Math.abs(dy) : Infinity,
    1,
  );
  return { x: box.x + dx * share, y: box.y + dy * share };
}

function point({ x, y }) {
  return `${x.toFixed(1)} ${y.toFixed(1)}`;
}
