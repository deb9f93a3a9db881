/**
 * The text of queries, as far as an editor needs to understand it: words for colours, declared parameters for a form,
 * and which result columns are nodes. What a query means is decided by the server alone.
 */

const KEYWORDS = new Set(
  ("query match return order limit not as asc desc insert update delete set where from to true false now contains " +
    "starts_with count sum avg min max nearest search fuzzy match_text bm25 rrf date datetime").split(" "),
);
const TOKEN = new RegExp(
  [
    /(?<comment>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))/,
    /(?<string>"(?:\\[\s\S]|[^"\\\n])*"?)/,
    /(?<variable>\$[A-Za-z_]\w*|\$)/,
    /(?<annotation>@\w+)/,
    /(?<number>\d+(?:\.\d+)?)/,
    /(?<word>[A-Za-z_]\w*)/,
    /(?<space>\s+)/,
    /(?<mark>[<>!]=|[^\s])/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "gu",
);

/** The pieces of a text, none left out: `{kind, text, start}`; kinds are the class names of the editor. */
export function tokens(text) {
  const found = [];
  for (const match of text.matchAll(TOKEN)) {
    const [kind] = Object.entries(match.groups).find(([, piece]) => piece !== undefined);
    found.push({ kind: refine(kind, match[0]), text: match[0], start: match.index });
  }
  return found;
}

function refine(kind, text) {
  if (kind !== "word") return kind;
  if (KEYWORDS.has(text)) return "keyword";
  return /^[A-Z]/.test(text) ? "type" : "word";
}

/**
 * The queries of a text: `{name, params: [{name, type, nullable}], isMutation, body}`. A text that is not finished
 * gives what can be read already.
 */
export function declaredQueries(text) {
  const words = significant(text);
  const queries = [];
  for (let at = 0; at < words.length; at += 1) {
    if (words[at].text !== "query" || words[at + 2]?.text !== "(") continue;
    const name = words[at + 1].text;
    const close = closing(words, at + 2);
    const open = words.findIndex((word, place) => place > close && word.text === "{");
    const end = open < 0 ? words.length : closing(words, open);
    const body = open < 0 ? [] : words.slice(open + 1, end);
    const isMutation = ["insert", "update", "delete"].includes(body[0]?.text);
    queries.push({ name, params: declaredParams(words.slice(at + 3, close)), isMutation, body });
    at = Math.max(at, end - 1);
  }
  return queries;
}

/**
 * The columns of a result that hold ids of nodes: `Map(column → {variable, type, labelColumn})`, where the last one is
 * the column with the name of the node, or null; and the edges of the pattern: `[{edge, from, to, isDirect}]` with
 * variables as ends.
 */
export function entityColumns(query, schema) {
  const matched = block(query.body, "match");
  const links = traversals(matched, schema);
  const types = boundTypes(matched, links);
  const columns = new Map();
  const projected = projections(block(query.body, "return"));
  for (const { variable, property, column } of projected) {
    const type = types.get(variable);
    if (!type || !schema.node(type)) continue;
    const key = schema.key(type);
    const isTextKey = key.length === 1 && key[0] === property && isText(schema, type, property);
    if (property !== null && !isTextKey) continue;
    const named = projected.find((other) => other.variable === variable && other.property === schema.label(type));
    columns.set(column, { variable, type, labelColumn: named?.column ?? null });
  }
  return { columns, links };
}

function isText(schema, type, property) {
  return schema.node(type).properties.some((known) => known.name === property && known.type === "String");
}

function significant(text) {
  return tokens(text).filter(({ kind }) => kind !== "space" && kind !== "comment");
}

function closing(words, open) {
  const pairs = { "(": ")", "{": "}", "[": "]" };
  let depth = 0;
  for (let at = open; at < words.length; at += 1) {
    if (words[at].text in pairs) depth += 1;
    if (Object.values(pairs).includes(words[at].text)) depth -= 1;
    if (depth === 0) return at;
  }
  return words.length;
}

function declaredParams(words) {
  const params = [];
  for (let at = 0; at < words.length; at += 1) {
    if (words[at].kind !== "variable" || words[at + 1]?.text !== ":") continue;
    let type = "";
    let next = at + 2;
    for (; next < words.length && words[next].text !== "," && words[next].kind !== "variable"; next += 1) {
      type += words[next].text;
    }
    const nullable = type.endsWith("?");
    params.push({ name: words[at].text.slice(1), type: nullable ? type.slice(0, -1) : type, nullable });
    at = next - 1;
  }
  return params;
}

function block(body, keyword) {
  const at = body.findIndex((word, place) => word.text === keyword && body[place + 1]?.text === "{");
  return at < 0 ? [] : body.slice(at + 2, closing(body, at + 1));
}

/** `$a cites $b`, also with an edge variable, hops, or angle brackets. Inside `not` nothing is bound for the result. */
function traversals(words, schema) {
  const links = [];
  for (let at = 0; at < words.length; at += 1) {
    if (words[at].text === "not" && words[at + 1]?.text === "{") {
      at = closing(words, at + 1);
      continue;
    }
    if (words[at].kind !== "variable") continue;
    let next = at + 1;
    if (words[next]?.kind === "variable" && words[next + 1]?.text === ":") next += 2;
    const isEitherWay = words[next]?.text === "<";
    if (isEitherWay) next += 1;
    const edge = schema.edge(words[next]?.text ?? "");
    if (!edge) continue;
    next += isEitherWay ? 2 : 1;
    const isFar = words[next]?.text === "{";
    if (isFar) next = closing(words, next) + 1;
    if (words[next]?.kind !== "variable") continue;
    const [from, to] = [words[at].text.slice(1), words[next].text.slice(1)];
    links.push({ edge, from, to, isDirect: !isFar && !isEitherWay });
  }
  return links;
}

function boundTypes(words, links) {
  const types = new Map();
  for (let at = 0; at < words.length; at += 1) {
    const isBinding = words[at].kind === "variable" && words[at + 1]?.text === ":" && words[at + 2]?.kind === "type";
    if (isBinding) types.set(words[at].text.slice(1), words[at + 2].text);
  }
  // An edge is followed backwards where only that fits, and its ends tell the types of what is not bound otherwise.
  for (const link of links) {
    const { edge } = link;
    const isBackward = edge.from !== edge.to && (types.get(link.from) === edge.to || types.get(link.to) === edge.from);
    if (isBackward) [link.from, link.to] = [link.to, link.from];
    if (!types.has(link.from)) types.set(link.from, edge.from);
    if (!types.has(link.to)) types.set(link.to, edge.to);
  }
  return types;
}

/** The plain projections of a return block: `{variable, property, column}`; `property` is null for a bare variable. */
function projections(words) {
  const found = [];
  for (let at = 0; at < words.length; at += 1) {
    if (words[at + 1]?.text === "(") { // an aggregate or another call
      at = closing(words, at + 1);
      continue;
    }
    if (words[at].kind !== "variable") continue;
    const variable = words[at].text.slice(1);
    const hasProperty = words[at + 1]?.text === ".";
    const property = hasProperty ? words[at + 2]?.text : null;
    if (hasProperty) at += 2;
    const isNamed = words[at + 1]?.text === "as";
    const column = isNamed ? words[at + 2]?.text : hasProperty ? `${variable}.${property}` : variable;
    if (isNamed) at += 2;
    found.push({ variable, property, column });
  }
  return found;
}
