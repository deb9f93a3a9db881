/** The start of the page: header, views, and the address that says which view is shown. */

import { createExploreView } from "./explore_view.js";
import { prepareHeader } from "./header.js";
import { createHistoryView } from "./history_view.js";
import { createQueryView } from "./query_view.js";
import { createSchemaView } from "./schema_view.js";
import { session } from "./session.js";
import { prepareViewer } from "./values.js";

const MAKERS = {
  schema: createSchemaView,
  query: createQueryView,
  explore: createExploreView,
  history: createHistoryView,
};
const FIRST = "schema";

/** Views by name, made when they are first shown. A view has `reload()`, for another graph, branch or token. */
const views = new Map();
const outdated = new Set();

function shownView() {
  const name = location.hash.slice(1).split("/")[0];
  return name in MAKERS ? name : FIRST;
}

function show() {
  if (location.hash === "#main") return; // the link that skips the header
  const name = shownView();
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const other of Object.keys(MAKERS)) document.getElementById(`view-${other}`).hidden = other !== name;
  const isNew = !views.has(name);
  if (isNew) views.set(name, MAKERS[name](document.getElementById(`view-${name}`)));
  if (isNew || outdated.delete(name)) views.get(name).reload();
  views.get(name).shown?.();
}

function reload() {
  for (const name of views.keys()) outdated.add(name);
  show();
}

window.addEventListener("hashchange", show);
session.addEventListener("target", reload);
session.addEventListener("open-node", ({ detail }) => {
  location.hash = "#explore";
  show();
  views.get("explore").open(detail);
});

prepareViewer();
prepareHeader(reload);
show();
