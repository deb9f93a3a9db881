/** The history of the graph: its commits as a drawing, what each one changed, and what differs between two states. */

import { ApiError, api, isSuperseded, Latest } from "./api.js";
import { commitChanges, differences } from "./change_list.js";
import { createCommitList } from "./commit_list.js";
import { button, el, field, fill } from "./dom.js";
import { session } from "./session.js";
import { empty, failure, loading } from "./states.js";
import { counted, propertyTable, timeElement } from "./values.js";

export function createHistoryView(root) {
  const reading = new Latest();
  const looking = new Latest();
  const list = createCommitList(showCommit);
  const count = el("span", { class: "count" });
  const from = stateInput("diff-from");
  const to = stateInput("diff-to");
  const names = el("datalist", { id: "diff-names" });
  const stage = el("div", { class: "stage history-stage" });
  const details = el("aside", { class: "panel wide", "aria-label": "Changes", "aria-live": "polite" });
  const compare = el(
    "form",
    {
      class: "bar",
      "aria-label": "Compare",
      on: {
        submit: (event) => {
          event.preventDefault();
          showDifferences();
        },
      },
    },
    field("From", from),
    field("To", to),
    el("button", { type: "submit", class: "primary" }, "Compare"),
    names,
    count,
  );
  fill(root, compare, el("div", { class: "split history" }, stage, details));

  // ---- one commit

  function showCommit(commit) {
    const signal = looking.begin();
    const id = commit.graph_commit_id;
    const facts = {
      branch: commit.graph_branch,
      version: commit.graph_manifest_version,
      actor: commit.actor_id,
      message: commit.message,
      metadata: commit.metadata && JSON.stringify(commit.metadata),
      parent: commit.parent_commit_id,
      "merged parent": commit.merged_parent_commit_id,
      "merge strategy": commit.merge_strategy,
    };
    fill(
      details,
      el("p", { class: "kind", text: (commit.kind ?? "commit").replaceAll("_", " ") }),
      el("h2", { class: "id", text: id }),
      el("p", { class: "hint" }, timeElement(commit.created_at), " UTC"),
      el(
        "div",
        { class: "row" },
        button("Compare from here", () => {
          from.value = id;
          to.focus();
        }),
        button("Compare to here", () => {
          to.value = id;
          from.focus();
        }),
      ),
      propertyTable(
        Object.entries(facts).filter(([, value]) => value !== null && value !== undefined),
        { title: "Commit" },
      ),
      el("h3", { text: "Changes" }),
      commitChanges(id, signal),
    );
  }

  // ---- two states

  function showDifferences() {
    const [one, other] = [from.value.trim(), to.value.trim()];
    if (!one || !other) {
      fill(details, empty("Name two branches or commits", "Choose a commit in the drawing to use its id."));
      return;
    }
    const signal = looking.begin();
    const totals = el("p", { class: "hint" });
    fill(
      details,
      el("h2", { text: "Differences" }),
      el("p", { class: "hint id", text: `${one} → ${other}` }),
      totals,
      differences(one, other, signal, ({ stats }) => {
        if (!stats) return;
        const counts = [
          [stats.inserts, "insert"],
          [stats.updates, "update"],
          [stats.deletes, "delete"],
        ];
        totals.textContent = counts.map(([number, word]) => counted(number, word)).join(", ");
      }),
    );
    details.scrollIntoView({ block: "nearest" });
  }

  // ---- another graph, branch or token

  async function reload() {
    const signal = reading.begin();
    looking.cancel();
    count.textContent = "";
    fill(details, empty("Choose a commit", "What it changed appears here. Or compare two branches."));
    fill(stage, loading("Reading the history…"));
    try {
      const { commits, heads } = await api.log(signal);
      show(commits, heads);
    } catch (error) {
      if (isSuperseded(error)) return;
      if (!(error instanceof ApiError)) throw error;
      fill(stage, failure(error, reload));
    }
  }

  function show(commits, heads) {
    const branches = Object.keys(heads);
    const branchCount = branches.length === 1 ? "1 branch" : `${branches.length} branches`;
    count.textContent = `${counted(commits.length, "commit")}, ${branchCount}`;
    fill(names, branches.map((name) => el("option", { value: name })));
    from.value ||= "main";
    if (!to.value && session.branch !== "main") to.value = session.branch;
    fill(stage, commits.length ? list.element : empty("No commits"));
    list.show(commits, heads);
  }

  return { reload };
}

/** Where a branch or commit is named. */
function stateInput(id) {
  return el("input", {
    id,
    list: "diff-names",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "branch or commit",
  });
}
