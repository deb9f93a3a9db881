/** What is around a node, asked from the server. */

import { api } from "./api.js";
import { neighbours, ownRows } from "./gq_queries.js";

export const STEP = 25;
const AT_ONCE = 4;

/** A node with its values at the head of the shown branch; null if it is not there. */
export async function readNode(type, id, signal) {
  const entity = await api.entity(`node:${type}`, id, { signal });
  return entity ? { type, id, properties: entity.properties } : null;
}

/**
 * The neighbours of a node over one link: `{nodes, edges, hasMore}`. `limit` grows by `STEP` when the reader asks for
 * more; one row above it tells whether there are any.
 */
export async function readNeighbours(schema, node, link, limit, signal) {
  const asked = neighbours(schema, node, link, limit + 1);
  const result = await api.query({ query: asked.query, params: asked.params }, signal);
  const rows = ownRows(result.rows, node);
  const shown = rows.slice(0, limit);
  const parallel = new Map();
  return {
    nodes: shown.map(({ id, label }) => ({ type: link.other, id, label: label ?? null })),
    edges: shown.map((row) => edgeOf(node, link, row, asked.edgeProperties, parallel)),
    hasMore: rows.length > limit,
  };
}

function edgeOf(node, link, row, names, parallel) {
  const here = { type: node.type, id: node.id };
  const there = { type: link.other, id: row.id };
  // Ids of edges cannot be asked for: several between the same nodes are told apart by counting.
  const number = (parallel.get(row.id) ?? 0) + 1;
  parallel.set(row.id, number);
  return {
    type: link.edge.name,
    from: link.direction === "out" ? here : there,
    to: link.direction === "out" ? there : here,
    number,
    properties: Object.fromEntries(names.map((name, place) => [name, row[`e_${place}`]])),
  };
}

/** Do something with every item, a few at a time; fails with the first failure. */
export async function forEachAtOnce(items, action) {
  const waiting = [...items];
  async function work() {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await action(item);
  }
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
}
