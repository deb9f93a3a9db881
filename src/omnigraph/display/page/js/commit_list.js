/** The commits of a graph as rows with lanes; only the rows that can be seen are on the page. */

import { button, el, fill, svg } from "./dom.js";
import { layLanes } from "./lanes.js";
import { shortId, timeElement } from "./values.js";

const ROW = 46;
const LANE = 16;
const MARGIN = 14;
/** A wider drawing would leave no room for the text; further lanes share the last column. */
const MAX_LANES = 12;
const BEYOND = 8;
const COLOURS = 10;

/** `onChoose(commit)`. Gives `element`, `show(commits, heads)` and `choose(id)`. */
export function createCommitList(onChoose) {
  const inner = el("div", { class: "commit-rows", role: "list" });
  const element = el("div", { class: "commit-list", tabindex: -1 }, inner);
  let commits = [];
  let drawing = { rows: [], width: 1 };
  let labels = new Map();
  let chosen = null;
  let shown = "";

  function show(newCommits, heads) {
    commits = newCommits;
    drawing = layLanes(commits, heads.main);
    labels = new Map();
    for (const [branch, id] of Object.entries(heads)) labels.set(id, [...(labels.get(id) ?? []), branch]);
    chosen = null;
    inner.style.height = `${commits.length * ROW}px`;
    element.scrollTop = 0;
    paint(true);
  }

  function paint(isForced = false) {
    const height = element.clientHeight || 600;
    const first = Math.max(Math.floor(element.scrollTop / ROW) - BEYOND, 0);
    const last = Math.min(Math.ceil((element.scrollTop + height) / ROW) + BEYOND, commits.length);
    const range = `${first}-${last}`;
    if (range === shown && !isForced) return;
    shown = range;
    const focused = inner.contains(document.activeElement) ? document.activeElement.dataset.commit : null;
    fill(inner, Array.from({ length: last - first }, (_, place) => row(first + place)));
    if (focused) rowButton(focused)?.focus({ preventScroll: true });
  }

  function row(place) {
    const commit = commits[place];
    const id = commit.graph_commit_id;
    const lanes = Math.min(drawing.width, MAX_LANES);
    const item = el(
      "div",
      { class: "commit-row", role: "listitem", "aria-setsize": commits.length, "aria-posinset": place + 1 },
      lanesOf(drawing.rows[place], lanes),
      button("", () => choose(id), {
        class: "commit-item",
        data: { commit: id },
        "aria-pressed": String(id === chosen),
        title: id,
      }),
    );
    item.style.top = `${place * ROW}px`;
    item.lastChild.append(
      el(
        "span",
        { class: "commit-head" },
        (labels.get(id) ?? []).map((branch) => el("span", { class: "branch-label", text: branch })),
        el("span", { class: "commit-kind", text: words(commit.kind ?? "commit") }),
        el("span", { class: "commit-actor", text: commit.actor_id ?? "" }),
        el("span", { class: "commit-message", text: (commit.message ?? "").split("\n", 1)[0] }),
      ),
      el(
        "span",
        { class: "commit-foot" },
        el("code", { text: shortId(id) }),
        timeElement(commit.created_at),
        el("span", { text: `on ${commit.graph_branch}${commit.branch_deleted ? " (deleted)" : ""}` }),
      ),
    );
    return item;
  }

  function rowButton(id) {
    return inner.querySelector(`[data-commit="${CSS.escape(id)}"]`);
  }

  /** Choose a commit, bring it into sight, and tell. */
  function choose(id) {
    const place = commits.findIndex((commit) => commit.graph_commit_id === id);
    if (place < 0) return;
    chosen = id;
    const top = place * ROW;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW - element.clientHeight;
    paint(true);
    onChoose(commits[place]);
  }

  function step(event) {
    const at = commits.findIndex((commit) => commit.graph_commit_id === chosen);
    const places = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: commits.length - 1 };
    if (!(event.key in places)) return;
    event.preventDefault();
    const next = commits[Math.min(Math.max(places[event.key], 0), commits.length - 1)];
    choose(next.graph_commit_id);
    rowButton(next.graph_commit_id)?.focus({ preventScroll: true });
  }

  element.addEventListener("scroll", () => paint());
  element.addEventListener("keydown", step);
  new ResizeObserver(() => paint()).observe(element);
  return { element, show, choose };
}

function words(kind) {
  return kind.replaceAll("_", " ");
}

function lanesOf({ column, lines }, width) {
  const x = (lane) => MARGIN + Math.min(lane, MAX_LANES - 1) * LANE;
  const middle = ROW / 2;
  return svg(
    "svg",
    { class: "lanes", width: MARGIN * 2 + (width - 1) * LANE, height: ROW, "aria-hidden": "true" },
    lines.map(({ from, to, colour, isCut }) =>
      svg("path", {
        class: `lane type-${colour % COLOURS}${isCut ? " cut" : ""}`,
        d: path(x(from), x(to), middle, isCut),
      }),
    ),
    svg("circle", { class: `commit-dot type-${column % COLOURS}`, cx: x(column), cy: middle, r: 5 }),
  );
}

/** From the middle of a row to the middle of the next; a line that is cut ends between them. */
function path(from, to, middle, isCut) {
  const end = middle + (isCut ? ROW * 0.4 : ROW);
  const target = isCut ? from : to;
  if (from === target) return `M${from} ${middle} V${end}`;
  return `M${from} ${middle} C${from} ${middle + ROW * 0.55} ${target} ${end - ROW * 0.55} ${target} ${end}`;
}
