/** Find nodes of a type, put them on a canvas, and walk from there. */

import { ApiError, api, isSuperseded, Latest } from "./api.js";
import { announce, button, el, field, fill, select, setOptions } from "./dom.js";
import { nodesOfType } from "./gq_queries.js";
import { createGraphPanel } from "./graph_panel.js";
import { isComparable, SchemaModel } from "./schema_model.js";
import { empty, failure, loading } from "./states.js";
import { counted } from "./values.js";

const LISTED = 50;

export function createExploreView(root) {
  const preparing = new Latest();
  const listing = new Latest();
  let schema = null;
  let panel = null;
  /** A node that shall be shown as soon as the schema is known. */
  let awaited = null;

  const type = select([], { id: "explore-type", onChange: typeChanged });
  const property = select([], { id: "explore-property" });
  const text = el("input", {
    type: "search",
    id: "explore-text",
    placeholder: "all",
    autocomplete: "off",
    spellcheck: "false",
  });
  const found = el("div", { class: "found", "aria-live": "polite" });
  const place = el("div", { class: "explore-graph" });
  const form = el(
    "form",
    {
      class: "bar",
      role: "search",
      on: {
        submit: (event) => {
          event.preventDefault();
          list();
        },
      },
    },
    field("Type", type),
    field("Where", property),
    field("Is or contains", text),
    el("button", { type: "submit", class: "primary" }, "Find"),
  );
  fill(root, form, found, place);

  function typeChanged() {
    const node = schema.node(type.value);
    const label = schema.label(type.value);
    const usable = node.properties.filter(isComparable);
    setOptions(property, usable.map(({ name }) => [name, name]), label ?? schema.key(type.value)[0]);
    text.value = "";
    list();
  }

  async function list() {
    const node = schema?.node(type.value);
    if (!node) return;
    const signal = listing.begin();
    const wanted = node.properties.find(({ name }) => name === property.value);
    const search = text.value.trim() && wanted ? { property: wanted, text: text.value.trim() } : null;
    const asked = nodesOfType(schema, node.name, { limit: LISTED + 1, search });
    fill(found, loading(`Reading ${node.name} nodes…`));
    try {
      const { rows } = await api.query(asked, signal);
      showFound(node, rows, search);
    } catch (error) {
      if (isSuperseded(error)) return;
      if (!(error instanceof ApiError)) throw error;
      fill(found, failure(error, list));
    }
  }

  function showFound(node, rows, search) {
    if (!rows.length) {
      const reason = search
        ? `Nothing with this ${search.property.name}. Upper and lower case differ.`
        : "This branch has none.";
      fill(found, empty(`No ${node.name} found`, reason));
      return;
    }
    const shown = rows.slice(0, LISTED);
    const nodes = shown.map(({ id, label }) => ({ type: node.name, id, label: label ?? null }));
    const hint = rows.length > LISTED ? `the first ${LISTED}` : counted(shown.length, "node");
    announce(hint);
    fill(
      found,
      el(
        "div",
        { class: "row" },
        el("span", { class: "count", text: hint }),
        button("Show all", () => panel.add(nodes), { class: "quiet" }),
      ),
      el(
        "ul",
        { class: "plain found-list" },
        nodes.map((each) =>
          el("li", {}, button(each.label ?? each.id, () => panel.open(each), { class: "chip", title: each.id })),
        ),
      ),
    );
  }

  async function reload() {
    const signal = preparing.begin();
    listing.cancel();
    schema = null;
    panel = null;
    form.hidden = true;
    fill(place);
    fill(found, loading("Reading the schema…"));
    try {
      schema = await SchemaModel.read(signal);
    } catch (error) {
      if (!isSuperseded(error)) fill(found, failure(error, reload));
      return;
    }
    if (!schema.nodes.length) {
      fill(found, empty("This schema declares no node types yet"));
      return;
    }
    form.hidden = false;
    panel = createGraphPanel(place, schema);
    setOptions(type, schema.nodes.map(({ name }) => [name, name]));
    typeChanged();
    if (awaited) open(awaited);
  }

  /** Show a node: `{type, id}`. */
  function open(node) {
    awaited = panel ? null : node;
    panel?.open({ ...node, label: null });
  }

  return { reload, open };
}
