/**
 * A saved picture: the drawing can be moved and zoomed, and what is chosen shows its values. Without this script it is
 * the same drawing, standing still.
 */

import { button, el, fill } from "./dom.js";
import { panAndZoom } from "./pan_zoom.js";

const details = JSON.parse(document.getElementById("details").textContent);
const image = document.querySelector("main > svg");
const drawing = image.querySelector(".drawing");
const panel = document.querySelector("aside");

/** The theme of the notebook around the picture, if there is one that can be seen. */
function followTheme() {
  let around = null;
  try {
    around = window.frameElement && getComputedStyle(window.frameElement).color;
  } catch {
    return; // a page of another origin: the system decides
  }
  const found = /^rgba?\((\d+), (\d+), (\d+)/.exec(around ?? "");
  if (!found) return;
  const [red, green, blue] = found.slice(1).map(Number);
  const isLightText = 0.3 * red + 0.6 * green + 0.1 * blue > 140;
  document.documentElement.dataset.theme = isLightText ? "dark" : "light";
}

function elements() {
  return [...drawing.querySelectorAll("[data-key]")];
}

/** The keys of a node and what it is linked to, or of an edge and its ends. */
function around(key) {
  const found = new Set([key]);
  for (const [edge, { ends }] of Object.entries(details)) {
    if (!ends || (edge !== key && !ends.includes(key))) continue;
    found.add(edge);
    ends.forEach((end) => found.add(end));
  }
  return found;
}

function choose(key) {
  const near = key === null ? null : around(key);
  for (const element of elements()) {
    element.classList.toggle("chosen", element.dataset.key === key);
    element.classList.toggle("dim", near !== null && !near.has(element.dataset.key));
  }
  panel.hidden = key === null;
  if (key === null) return;
  const { kind, name, facts } = details[key];
  fill(
    panel,
    button("×", () => choose(null), { class: "close", "aria-label": "Close" }),
    el("p", { class: "kind", text: kind }),
    el("h2", { text: name }),
    el(
      "table",
      {},
      el("tbody", {}, facts.map(([label, value]) => el("tr", {}, el("th", { scope: "row", text: label }), el("td", { text: value })))),
    ),
  );
}

function start() {
  followTheme();
  const { x, y, width, height } = image.viewBox.baseVal;
  image.removeAttribute("viewBox");
  image.classList.add("movable");
  const view = panAndZoom(image, drawing, { left: x, top: y, width, height });
  document.querySelector("main").append(
    el(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      button("+", () => view.zoom(1.25), { "aria-label": "Zoom in" }),
      button("−", () => view.zoom(0.8), { "aria-label": "Zoom out" }),
      button("Fit", () => view.fit()),
    ),
  );
  for (const element of elements()) {
    if (!(element.dataset.key in details)) continue;
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "button");
    element.addEventListener("click", () => choose(element.dataset.key));
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(element.dataset.key);
    });
  }
  image.addEventListener("click", (event) => {
    if (event.target === image || event.target.classList.contains("ground")) choose(null);
  });
  new ResizeObserver(() => view.fit()).observe(image);
}

start();
