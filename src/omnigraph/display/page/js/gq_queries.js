/**
 * Queries that the page writes itself: lists of nodes and their neighbours. Values always travel as parameters; only
 * names of the schema stand in the text.
 */

import { isComparable, parameterType } from "./schema_model.js";

// A value that is longer does not help to find a node, and would make requests large.
const MAX_COMPARED_LENGTH = 2000;
// Nodes without a key are found by their values; so many rows are looked through for the wanted id.
const UNKEYED_ROWS = 500;

/** The first nodes of a type; with `{property, text}` those whose property fits. */
export function nodesOfType(schema, typeName, { limit, search = null }) {
  const label = schema.label(typeName);
  const clauses = [`$n: ${typeName}`];
  const declared = [];
  const params = {};
  if (search) {
    const type = parameterType(search.property);
    const isText = search.property.type === "String";
    clauses.push(`$n.${search.property.name} ${isText ? "contains" : "="} $text`);
    declared.push(`$text: ${type}`);
    params.text = type === "Bool" ? search.text === "true" : search.text;
  }
  return {
    query: [
      `query nodes(${declared.join(", ")}) {`,
      `  match { ${clauses.join("  ")} }`,
      `  return { $n as id${label ? `, $n.${label} as label` : ""} }`,
      label ? `  order { $n.${label} }` : "",
      `  limit ${limit}`,
      "}",
    ].join("\n"),
    params,
  };
}

/**
 * The neighbours of a node over one link (see `SchemaModel.links`), with the values of the edge between them.
 * The rows may belong to other nodes too if the type has no key: `ownRows` leaves them out.
 */
export function neighbours(schema, node, link, limit) {
  const { declared, conditions, params, isExact } = identity(schema, node);
  const label = schema.label(link.other);
  const properties = link.edge.properties.filter(({ type }) => !/^(Blob|Vector)/.test(type));
  const edge = `$e:${edgeWord(link.edge.name)}`;
  const step = link.direction === "out" ? `$n ${edge} $m` : `$m ${edge} $n`;
  const columns = ["$n as source_id", "$m as id"];
  if (label) columns.push(`$m.${label} as label`);
  properties.forEach(({ name }, place) => columns.push(`$e.${name} as e_${place}`));
  return {
    query: [
      `query neighbours(${declared.join(", ")}) {`,
      `  match { $n: ${node.type}${conditions.length ? ` { ${conditions.join(", ")} }` : ""}  ${step} }`,
      `  return { ${columns.join(", ")} }`,
      label ? `  order { $m.${label} }` : "",
      `  limit ${isExact ? limit : Math.max(limit, UNKEYED_ROWS)}`,
      "}",
    ].join("\n"),
    params,
    edgeProperties: properties.map(({ name }) => name),
  };
}

/** The rows that belong to the node that was asked for. */
export function ownRows(rows, node) {
  return rows.filter((row) => row.source_id === node.id);
}

/** Conditions that a node fulfils: its key, or, as ids cannot be compared, everything that is known about it. */
function identity(schema, node) {
  const known = schema.node(node.type).properties;
  const key = schema.key(node.type);
  const isExact = key.length > 0;
  const chosen = isExact ? known.filter(({ name }) => key.includes(name)) : known.filter(isComparable);
  const used = chosen.filter(({ name }) => isUsable(node.properties[name]));
  const params = {};
  used.forEach(({ name }, place) => {
    params[`v${place}`] = node.properties[name];
  });
  return {
    declared: used.map((property, place) => `$v${place}: ${parameterType(property)}`),
    conditions: used.map(({ name }, place) => `${name}: $v${place}`),
    params,
    isExact: isExact && used.length === key.length,
  };
}

function isUsable(value) {
  return value !== null && value !== undefined && String(value).length <= MAX_COMPARED_LENGTH;
}

/** Edges are written with a small first letter; `not` is the one word that is taken. */
function edgeWord(name) {
  const word = name[0].toLowerCase() + name.slice(1);
  return word === "not" ? "nOt" : word;
}
