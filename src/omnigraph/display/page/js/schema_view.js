/** The schema of the graph: a diagram, and its text. */

import { isSuperseded, Latest } from "./api.js";
import { button, el, fill } from "./dom.js";
import { drawSchema } from "./schema_diagram.js";
import { notes, SchemaModel, typeText } from "./schema_model.js";
import { empty, failure, loading } from "./states.js";
import { counted } from "./values.js";

export function createSchemaView(root) {
  const latest = new Latest();
  const summary = el("p", { class: "hint summary" });
  const stage = el("div", { class: "stage schema-stage" });
  const details = el("aside", { class: "panel", "aria-label": "Type", "aria-live": "polite" });
  const diagramButton = button("Diagram", () => choose("diagram"), { class: "segment" });
  const textButton = button("Text", () => choose("text"), { class: "segment" });
  let mode = "diagram";
  let schema = null;

  fill(
    root,
    el(
      "div",
      { class: "bar" },
      el("div", { class: "segments", role: "group", "aria-label": "Show as" }, diagramButton, textButton),
      summary,
    ),
    el("div", { class: "split" }, stage, details),
  );

  function choose(next) {
    mode = next;
    show();
  }

  function show() {
    diagramButton.setAttribute("aria-pressed", String(mode === "diagram"));
    textButton.setAttribute("aria-pressed", String(mode === "text"));
    if (!schema) return;
    if (mode === "text") {
      fill(stage, el("pre", { class: "source", tabindex: 0, text: schema.source }));
    } else if (!schema.nodes.length) {
      fill(stage, empty("This schema declares no node types yet"));
    } else {
      drawSchema(stage, schema, showType);
    }
  }

  function showType(kind, declared) {
    fill(details, kind === "node" ? nodeDetails(schema, declared) : edgeDetails(declared));
  }

  async function reload() {
    const signal = latest.begin();
    schema = null;
    fill(stage, loading("Reading the schema…"));
    fill(details);
    summary.textContent = "";
    try {
      schema = await SchemaModel.read(signal);
    } catch (error) {
      if (!isSuperseded(error)) fill(stage, failure(error, reload));
      return;
    }
    summary.textContent = `${counted(schema.nodes.length, "node type")}, ${counted(schema.edges.length, "edge type")}`;
    fill(details, empty("Choose a type", "Its properties and annotations appear here."));
    show();
  }

  return { reload };
}

function nodeDetails(schema, node) {
  const links = schema.links(node.name);
  return [
    el("h2", {}, el("span", { class: `dot type-${schema.colour(node.name)}` }), node.name),
    description(node),
    propertyList(node),
    links.length ? el("h3", { text: "Edges" }) : null,
    el(
      "ul",
      { class: "plain" },
      links.map(({ edge, direction, other }) =>
        el("li", { text: direction === "out" ? `${edge.name} → ${other}` : `${other} → ${edge.name}` }),
      ),
    ),
  ];
}

function edgeDetails(edge) {
  const key = edge.key ? `, @key(${edge.key.join(", ")})` : "";
  const ends = `${edge.from} → ${edge.to}, ${edge.cardinality} per ${edge.from}${key}`;
  return [
    el("h2", { text: edge.name }),
    el("p", { class: "hint", text: ends }),
    description(edge),
    edge.properties.length ? propertyList(edge) : el("p", { class: "hint", text: "no properties" }),
  ];
}

function description(declared) {
  return told(declared).map((text) => el("p", { class: "hint", text }));
}

/** What a schema says about a type or property, beside its name and type. */
function told(declared) {
  return declared.description ? [declared.description, ...notes(declared)] : notes(declared);
}

function propertyList(declared) {
  return el(
    "table",
    { class: "properties" },
    el("caption", { class: "visually-hidden", text: `Properties of ${declared.name}` }),
    el(
      "tbody",
      {},
      declared.properties.map((property) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text: property.name }),
          el(
            "td",
            {},
            el("code", { text: typeText(property) }),
            told(property).map((text) => el("span", { class: "note", text })),
          ),
        ),
      ),
    ),
  );
}
