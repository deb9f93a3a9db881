/** The types of a graph, as `GET /schema` describes them, with the answers the views need. */

import { api } from "./api.js";

const COLOURS = 10;
const LABEL_NAMES = ["title", "name", "full_name", "label", "display_name", "headline", "subject"];
const COMPARABLE = /^(String|Bool|I32|I64|U32|U64|Date|DateTime|enum\(.*\))$/;

export class SchemaModel {
  constructor(body) {
    this.source = body.schema_source ?? "";
    this.nodes = body.types?.nodes ?? [];
    this.edges = body.types?.edges ?? [];
    this.#nodesByName = new Map(this.nodes.map((node) => [node.name, node]));
  }

  #nodesByName;

  /** Read the schema that a graph has now. */
  static async read(signal) {
    return new SchemaModel(await api.schema(signal));
  }

  node(name) {
    return this.#nodesByName.get(name);
  }

  /** The edge type that a word in a query means: the same name, whatever the case. */
  edge(word) {
    return this.edges.find((edge) => edge.name.toLowerCase() === word.toLowerCase());
  }

  /** A number for the colour of a type: the same on every part of the page. */
  colour(typeName) {
    const place = this.nodes.findIndex((node) => node.name === typeName);
    return Math.max(place, 0) % COLOURS;
  }

  /** The names of the properties that make up the id of a node; none if it has no key. */
  key(typeName) {
    const properties = this.node(typeName)?.properties ?? [];
    return properties.filter((property) => notes(property).includes("@key")).map(({ name }) => name);
  }

  /** The property that names a node for people, or null: then its id does. */
  label(typeName) {
    const texts = (this.node(typeName)?.properties ?? []).filter(({ type }) => type === "String");
    const names = texts.map(({ name }) => name);
    const key = this.key(typeName);
    return (
      LABEL_NAMES.find((name) => names.includes(name)) ??
      names.find((name) => /name|title|label/.test(name)) ??
      names.find((name) => key.includes(name)) ??
      names[0] ??
      null
    );
  }

  /** The edges at nodes of a type: `{edge, direction, other}`, one per direction for edges between equal types. */
  links(typeName) {
    const links = [];
    for (const edge of this.edges) {
      if (edge.from === typeName) links.push({ edge, direction: "out", other: edge.to });
      if (edge.to === typeName) links.push({ edge, direction: "in", other: edge.from });
    }
    return links;
  }
}

/** Whether values of a property can be compared exactly, so that they help to find a node again. */
export function isComparable(property) {
  return COMPARABLE.test(property.type);
}

/** The type that a parameter for a property has: an enum is a String there. */
export function parameterType(property) {
  return property.type.startsWith("enum(") ? "String" : property.type;
}

/** The annotations of a property, as the schema spells them; types have none here. */
export function notes(declared) {
  return declared.annotations ?? [];
}

/** A property as the schema language spells it. */
export function typeText(property) {
  return property.nullable ? `${property.type}?` : property.type;
}
