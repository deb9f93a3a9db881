/** A form for the parameters of a query, made from their declarations. */

import { el, field, fill, select } from "./dom.js";

const INTEGER = /^(I32|I64|U32|U64)$/;
const FLOAT = /^(F32|F64)$/;

/** The declared types that stand for the kinds in the catalog of stored queries. */
const TYPE_OF_KIND = {
  string: "String",
  bool: "Bool",
  int: "I32",
  bigint: "I64",
  float: "F64",
  date: "Date",
  datetime: "DateTime",
  blob: "Blob",
};

/** The parameters of a stored query as declarations of a text would give them. */
export function catalogParams(params) {
  return params.map((param) => ({ name: param.name, type: catalogType(param), nullable: param.nullable }));
}

function catalogType({ kind, item_kind: item, vector_dim: size }) {
  if (kind === "vector") return `Vector(${size})`;
  if (kind === "list") return `[${TYPE_OF_KIND[item] ?? item}]`;
  return TYPE_OF_KIND[kind] ?? kind;
}

/** A parameter has a value that cannot be sent. */
export class BadParameter extends Error {}

/** The form; a submit button with `form` set to its `id` may stand anywhere on the page. */
export function createParamsForm(id, onSubmit) {
  const element = el("form", {
    id,
    class: "params",
    "aria-label": "Parameters",
    on: {
      submit: (event) => {
        event.preventDefault();
        onSubmit();
      },
    },
  });
  let controls = [];
  /** What was entered, by name: it comes back when a parameter does. */
  const entered = new Map();

  function declare(params) {
    const isSame = JSON.stringify(params) === JSON.stringify(controls.map(({ param }) => param));
    if (isSame) return;
    controls = params.map((param) => control(param, entered));
    element.hidden = !params.length;
    fill(element, controls.map(({ element: shown }) => shown));
  }

  /** The values as they are sent. Throws `BadParameter` with a message for people. */
  function values() {
    return Object.fromEntries(controls.map(({ param, read }) => [param.name, read()]));
  }

  return { element, declare, values };
}

function control(param, entered) {
  const { name, type, nullable } = param;
  const input = inputFor(type);
  input.setAttribute("name", name);
  if (entered.has(name)) input.value = entered.get(name);
  input.addEventListener("input", () => entered.set(name, input.value));
  const nothing = nullable ? el("input", { type: "checkbox" }) : null;
  nothing?.addEventListener("change", () => {
    input.disabled = nothing.checked;
  });
  const label = field(`$${name}: ${type}${nullable ? "?" : ""}`, input);
  return {
    param,
    element: el(
      "div",
      { class: "param" },
      label,
      nothing ? el("label", { class: "null-choice" }, nothing, " null") : null,
    ),
    read: () => (nothing?.checked ? null : parsed(param, input.value)),
  };
}

function inputFor(type) {
  const common = { autocomplete: "off", spellcheck: "false" };
  if (type === "Bool") return select([["true", "true"], ["false", "false"]]);
  if (type === "Date") return el("input", { type: "date", ...common });
  if (INTEGER.test(type)) return el("input", { type: "text", inputmode: "numeric", placeholder: "0", ...common });
  if (FLOAT.test(type)) return el("input", { type: "text", inputmode: "decimal", placeholder: "0.0", ...common });
  return el("input", { type: "text", placeholder: example(type), ...common });
}

function example(type) {
  if (type === "DateTime") return "2024-05-01T12:00:00Z";
  if (type.startsWith("[")) return '["one", "two"]';
  return type.startsWith("Vector") ? "[0.1, 0.2, …]" : "";
}

function parsed({ name, type }, text) {
  if (type === "Bool") return text === "true";
  if (type === "String" || type === "Blob") return text;
  const value = text.trim();
  if (!value) throw new BadParameter(`$${name} needs a value of type ${type}.`);
  if (INTEGER.test(type)) {
    if (!/^-?\d+$/.test(value)) throw new BadParameter(`$${name} is a whole number: ${value} is none.`);
    return value; // as text: a JavaScript number would lose digits of large ones
  }
  if (FLOAT.test(type)) {
    if (!Number.isFinite(Number(value))) throw new BadParameter(`$${name} is a number: ${value} is none.`);
    return Number(value);
  }
  if (type.startsWith("[") || type.startsWith("Vector")) return parsedList(name, value);
  return value;
}

function parsedList(name, text) {
  try {
    const list = JSON.parse(text);
    if (Array.isArray(list)) return list;
  } catch {
    // told below
  }
  throw new BadParameter(`$${name} is a list: write it as JSON, such as [1, 2].`);
}
