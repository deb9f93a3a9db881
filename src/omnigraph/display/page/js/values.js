/** Values of a graph on the page: short, as text, and in full on demand. */

import { button, el } from "./dom.js";

const SHOWN_LENGTH = 120;

/** A value as one line of text. */
export function valueText(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A value as an element; a long one is cut, and opens in full on click. */
export function valueElement(value, { title = "Value", length = SHOWN_LENGTH } = {}) {
  if (value === null || value === undefined) return el("span", { class: "value null", text: "null" });
  const text = valueText(value);
  if (text.length <= length) return el("span", { class: `value ${typeof value}`, text });
  return button(`${text.slice(0, length)}…`, () => showInFull(title, value), {
    class: "value cut",
    title: `Show all ${text.length.toLocaleString("en")} characters`,
  });
}

/** Open the viewer on a value. */
export function showInFull(title, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const viewer = document.getElementById("viewer");
  document.getElementById("viewer-title").textContent = title;
  document.getElementById("viewer-text").textContent = text;
  viewer.showModal();
}

/** Wire the buttons of the viewer; once per page. */
export function prepareViewer() {
  const viewer = document.getElementById("viewer");
  const text = document.getElementById("viewer-text");
  document.getElementById("viewer-close").addEventListener("click", () => viewer.close());
  document.getElementById("viewer-copy").addEventListener("click", () => copyText(text.textContent));
  viewer.addEventListener("click", (event) => {
    if (event.target === viewer) viewer.close(); // on the backdrop
  });
}

/** Put a text on the clipboard; also where pages without encryption may not use the modern way. True on success. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "visually-hidden" });
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

/** Names and values as a table of two columns. */
export function propertyTable(entries, { title = "" } = {}) {
  return el(
    "table",
    { class: "properties" },
    title ? el("caption", { class: "visually-hidden", text: title }) : null,
    el(
      "tbody",
      {},
      entries.map(([name, value]) =>
        el("tr", {}, el("th", { scope: "row", text: name }), el("td", {}, valueElement(value, { title: name }))),
      ),
    ),
  );
}

/** A moment, given in microseconds, as local text and exact in the title. */
export function timeElement(microseconds) {
  const moment = new Date(microseconds / 1000);
  const iso = moment.toISOString();
  return el("time", { datetime: iso, title: iso, text: `${iso.slice(0, 10)} ${iso.slice(11, 16)}` });
}

/** The end of a commit id, which names the commit wherever one is asked for; the beginning is a time. */
export function shortId(id) {
  return id.slice(-8);
}

/** `1 row`, `2 rows`. */
export function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
