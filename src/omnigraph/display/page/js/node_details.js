/** What is known about a chosen node or edge. */

import { button, el } from "./dom.js";
import { propertyTable, valueElement } from "./values.js";

/**
 * A node with its values and the links that lead away from it. `shownOver(link)` gives `{count, hasMore}` of what is on
 * the canvas already, or null.
 */
export function nodeDetails(schema, node, { isPinned, shownOver, onExpandAll, onExpand, onPin, onHide }) {
  const label = schema.label(node.type);
  const name = (label && node.properties[label]) || node.id;
  const links = schema.links(node.type);
  return [
    el("p", { class: "kind" }, el("span", { class: `dot type-${schema.colour(node.type)}` }), node.type),
    el("h2", { text: name }),
    el("p", { class: "hint id" }, "id ", valueElement(node.id, { title: "Id" })),
    el(
      "div",
      { class: "row" },
      links.length ? button("Expand", onExpandAll, { class: "primary", title: "Show its neighbours" }) : null,
      button(isPinned ? "Unpin" : "Pin", onPin, {
        title: "A pinned node keeps its place",
        "aria-pressed": String(isPinned),
      }),
      button("Hide", onHide, { title: "Take it off the canvas" }),
    ),
    el(
      "ul",
      { class: "plain links", "aria-label": "Neighbours", hidden: !links.length },
      links.map((link) => linkItem(link, shownOver(link), onExpand)),
    ),
    propertyTable(Object.entries(node.properties), { title: `Properties of ${name}` }),
  ];
}

function linkItem(link, shown, onExpand) {
  const { edge, direction, other } = link;
  const text = direction === "out" ? `${edge.name} → ${other}` : `${edge.name} ← ${other}`;
  const count = shown === null ? "" : shown.hasMore ? `${shown.count}+` : String(shown.count);
  const isDone = shown !== null && !shown.hasMore;
  return el(
    "li",
    {},
    button(shown?.hasMore ? `${text}: more` : text, () => onExpand(link), { class: "quiet", disabled: isDone }),
    el("span", { class: "count", text: count }),
  );
}

/** An edge with its values; its ends are named by the canvas. */
export function edgeDetails({ type, source, target, properties }) {
  const entries = Object.entries(properties);
  const end = (key) => key.slice(key.indexOf("/") + 1);
  return [
    el("p", { class: "kind", text: "Edge" }),
    el("h2", { text: type }),
    el("p", { class: "hint", text: `${end(source)} → ${end(target)}` }),
    entries.length
      ? propertyTable(entries, { title: `Properties of ${type}` })
      : el("p", { class: "hint", text: "no properties" }),
  ];
}
