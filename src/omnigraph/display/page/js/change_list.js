/** Changes of entities: what came, changed and went, with the values before and after. */

import { ApiError, api, isSuperseded } from "./api.js";
import { button, el, fill } from "./dom.js";
import { empty, failure, loading } from "./states.js";
import { valueElement } from "./values.js";

const MARKS = { insert: "+", update: "~", delete: "−" };
const PAGE = 200;

/**
 * Changes page by page. `readPage(pageToken)` gives `{changes, next_page_token?}`; `imagesOf(change)` gives a promise
 * of `{before, after}` when an entry is opened.
 */
function changeList(readPage, imagesOf) {
  const list = el("ul", { class: "plain changes" });
  const foot = el("div", { class: "row center" });
  const element = el("div", { class: "change-list" }, list, foot);

  async function more(token) {
    fill(foot, loading("Reading changes…"));
    try {
      const page = await readPage(token);
      list.append(...page.changes.map((change) => changeItem(change, imagesOf)));
      const next = page.next_page_token;
      fill(foot, next ? button("Show more", () => more(next)) : null);
      if (!list.childElementCount) fill(foot, empty("No changes", "Both sides hold the same."));
    } catch (error) {
      if (isSuperseded(error)) return;
      if (!(error instanceof ApiError)) throw error;
      fill(foot, told(error) ?? failure(error, () => more(token)));
    }
  }

  more(null);
  return element;
}

/** Some commits have nothing to compare with; that is no failure. */
function told(error) {
  const reason = error.body.change_diff_refusal?.reason;
  if (reason === "parentless_commit") return empty("The first commit", "It has no parent to compare it with.");
  if (reason === "schema_boundary") {
    return empty("The schema changed here", "Entities before and after cannot be compared one by one.");
  }
  return null;
}

/** The changes that one commit made. */
export function commitChanges(commitId, signal) {
  return changeList(
    (pageToken) => api.changes(commitId, { pageToken, limit: PAGE, signal }),
    async ({ before, after }) => ({ before, after }),
  );
}

/** What turns one branch or commit into another. `onRead(page)` is told every page. */
export function differences(from, to, signal, onRead) {
  let sides = {};
  return changeList(
    async (pageToken) => {
      // Branches may move between two pages: those after the first are asked for with the commits of the first.
      const [one, other] = pageToken ? [sides.before, sides.after] : [from, to];
      const page = await api.diff(one, other, { pageToken, limit: PAGE, signal });
      sides = { before: page.from_graph_commit_id, after: page.to_graph_commit_id };
      onRead(page);
      return page;
    },
    async (change) => {
      const key = `${change.kind}:${typeName(change)}`;
      const [before, after] = await Promise.all([
        change.op === "insert" ? null : api.entity(key, change.id, { snapshot: sides.before, signal }),
        change.op === "delete" ? null : api.entity(key, change.id, { snapshot: sides.after, signal }),
      ]);
      return { before, after };
    },
  );
}

function typeName(change) {
  return change.type?.name ?? change.type_name;
}

function changeItem(change, imagesOf) {
  const body = el("div", { class: "change-body" });
  const item = el(
    "details",
    { class: `change ${change.op}` },
    el(
      "summary",
      {},
      el("span", { class: "mark", text: MARKS[change.op] ?? "?", title: change.op }),
      el("span", { class: "kind", text: typeName(change) }),
      el("span", { class: "id", text: change.id }),
    ),
    body,
  );
  item.addEventListener("toggle", async () => {
    if (!item.open || body.childElementCount) return;
    fill(body, loading());
    try {
      const { before, after } = await imagesOf(change);
      fill(body, comparison(before, after));
    } catch (error) {
      if (isSuperseded(error)) return;
      if (!(error instanceof ApiError)) throw error;
      fill(body, failure(error));
    }
  });
  return el("li", {}, item);
}

/** Two images side by side; of an update, what is equal is left out. */
function comparison(before, after) {
  const [old, fresh] = [flat(before), flat(after)];
  const names = [...new Set([...Object.keys(old), ...Object.keys(fresh)])];
  const isUpdate = Boolean(before && after);
  const shown = isUpdate ? names.filter((name) => JSON.stringify(old[name]) !== JSON.stringify(fresh[name])) : names;
  const sides = [
    { kind: "before", title: "Before", image: before, values: old },
    { kind: "after", title: "After", image: after, values: fresh },
  ].filter(({ image }) => image);
  const cell = ({ kind, values }, name) =>
    el("td", { class: kind }, valueElement(values[name], { title: name, length: 80 }));
  return el(
    "table",
    { class: "comparison" },
    el(
      "thead",
      {},
      el("tr", {}, ["Property", ...sides.map(({ title }) => title)].map((text) => el("th", { scope: "col", text }))),
    ),
    el(
      "tbody",
      {},
      shown.map((name) =>
        el("tr", {}, el("th", { scope: "row", text: name }), sides.map((side) => cell(side, name))),
      ),
    ),
  );
}

function flat(image) {
  if (!image) return {};
  const ends = image.endpoints ? { from: image.endpoints.from, to: image.endpoints.to } : {};
  return { ...ends, ...image.properties };
}
