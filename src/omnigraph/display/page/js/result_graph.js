/** The nodes in the rows of a result, on a canvas. */

import { keyOf } from "./canvas.js";

const MAX_NODES = 300;

/**
 * Put the nodes of a result on a panel, and the edges that the pattern of the query says are between them.
 * `entities` comes from `entityColumns`. Of very large results only the first nodes are drawn.
 */
export function addRows(panel, result, { columns, links }) {
  const columnOf = new Map([...columns].map(([column, { variable }]) => [variable, column]));
  const drawn = links.filter(({ from, to, isDirect }) => isDirect && columnOf.has(from) && columnOf.has(to));
  const nodes = new Map();
  const edges = [];
  for (const row of result.rows) {
    for (const [column, { type, labelColumn }] of columns) {
      const node = { type, id: row[column], label: row[labelColumn] ?? null };
      if (typeof node.id === "string" && nodes.size < MAX_NODES) nodes.set(keyOf(node), node);
    }
    for (const { edge, from, to } of drawn) {
      edges.push({
        type: edge.name,
        from: { type: edge.from, id: row[columnOf.get(from)] },
        to: { type: edge.to, id: row[columnOf.get(to)] },
      });
    }
  }
  const isKnown = (end) => nodes.has(keyOf(end));
  panel.add([...nodes.values()], edges.filter(({ from, to }) => isKnown(from) && isKnown(to)));
  if (nodes.size >= MAX_NODES) panel.say(`The first ${MAX_NODES} nodes are drawn.`);
}
