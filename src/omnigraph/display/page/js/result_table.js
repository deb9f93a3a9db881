/** The rows of a result as a table that can be sorted and copied. */

import { announce, button, el, fill } from "./dom.js";
import { copyText, counted, valueElement, valueText } from "./values.js";

const ROWS_AT_ONCE = 200;

/**
 * `result` is the answer of a query; `entities` maps columns that hold ids of nodes to their type. `onOpen(type, id)`
 * shows a node.
 */
export function resultTable(result, entities, onOpen) {
  const { columns } = result;
  let rows = result.rows;
  let sorted = null;
  let shown = ROWS_AT_ONCE;
  const body = el("tbody");
  const more = el("div", { class: "row center" });

  const heads = columns.map((column) =>
    el(
      "th",
      { scope: "col", "aria-sort": "none", class: result.rows.some((row) => typeof row[column] === "number") ? "number" : null },
      button(column, () => sortBy(column), { class: "sort", title: `Sort by ${column}` }),
    ),
  );

  function sortBy(column) {
    const isDescending = sorted?.column === column && !sorted.isDescending;
    sorted = { column, isDescending };
    rows = [...result.rows].sort((one, other) => compare(one[column], other[column]) * (isDescending ? -1 : 1));
    heads.forEach((head, place) => {
      head.setAttribute("aria-sort", columns[place] === column ? (isDescending ? "descending" : "ascending") : "none");
    });
    announce(`Sorted by ${column}, ${isDescending ? "descending" : "ascending"}`);
    show();
  }

  function show() {
    fill(body, rows.slice(0, shown).map((row) => el("tr", {}, columns.map((column) => cell(row[column], column)))));
    const left = rows.length - shown;
    const next = counted(Math.min(left, ROWS_AT_ONCE), "more row");
    fill(more, left > 0 ? button(`Show ${next} of ${left.toLocaleString("en")}`, showMore) : null);
  }

  function showMore() {
    shown += ROWS_AT_ONCE;
    show();
  }

  function cell(value, column) {
    const entity = entities.get(column);
    if (entity && typeof value === "string") {
      const open = () => onOpen(entity.type, value);
      return el("td", {}, button(value, open, { class: "link", title: `Show this ${entity.type}` }));
    }
    return el("td", { class: typeof value === "number" ? "number" : null }, valueElement(value, { title: column }));
  }

  show();
  return el(
    "div",
    { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Rows" },
    el("table", { class: "rows" }, el("thead", {}, el("tr", {}, heads)), body),
    more,
  );
}

/** Buttons that copy a result. */
export function copyButtons(result) {
  async function copy(text, name) {
    announce((await copyText(text)) ? `Copied as ${name}` : "The browser does not allow to copy");
  }
  return [
    button("Copy JSON", () => copy(JSON.stringify(result.rows, null, 2), "JSON"), { class: "quiet" }),
    button("Copy CSV", () => copy(csv(result), "CSV"), { class: "quiet" }),
  ];
}

function csv({ columns, rows }) {
  const text = (value) => (value === null ? "" : valueText(value));
  const lines = [columns, ...rows.map((row) => columns.map((column) => text(row[column])))];
  return lines.map((cells) => cells.map(quoted).join(",")).join("\r\n");
}

function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Nulls first, numbers by size, everything else as people sort text. */
function compare(one, other) {
  if (one === null || other === null) return (one !== null) - (other !== null);
  if (typeof one === "number" && typeof other === "number") return one - other;
  return valueText(one).localeCompare(valueText(other), "en", { numeric: true });
}
