/** Write a query, give it parameters, run it, and look at the rows or at the nodes in them. */

import { ApiError, api, isSuperseded, Latest } from "./api.js";
import { announce, button, el, field, fill, select, setOptions } from "./dom.js";
import { createEditor } from "./editor.js";
import { declaredQueries, entityColumns } from "./gq_text.js";
import { createGraphPanel } from "./graph_panel.js";
import { BadParameter, catalogParams, createParamsForm } from "./params_form.js";
import { addRows } from "./result_graph.js";
import { copyButtons, resultTable } from "./result_table.js";
import { SchemaModel } from "./schema_model.js";
import { session } from "./session.js";
import { empty, failure, loading } from "./states.js";
import { counted, shortId, showInFull } from "./values.js";

const ONLY_READS = "This query changes the graph. The explorer only reads: run it with the command line or a client.";
/** Rows that are asked for: more of them do not help here, and a query may have millions. */
const FIRST_ROWS = 1_000;
const MORE_ROWS =
  "There are more. Add a filter or an order to see others, or take all of them with the command line: omnigraph query.";
const NO_ENTITIES = { columns: new Map(), links: [] };

export function createQueryView(root) {
  const running = new Latest();
  const preparing = new Latest();
  let schema = null;
  let catalog = [];
  let isTouched = false;
  /** The last answer with the columns that hold nodes; null before the first one. */
  let answer = null;
  let mode = "table";

  const params = createParamsForm("query-params", run);
  const editor = createEditor({ onChange: textChanged, onRun: run, label: "Query" });
  const stored = select([["", "Written here"]], { onChange: showStored, id: "stored-query" });
  const which = select([], { id: "which-query", onChange: declareParams });
  const whichField = field("Run", which, { hidden: true });
  const about = el("p", { class: "hint", hidden: true });
  const runButton = el(
    "button",
    { type: "submit", form: "query-params", class: "primary", title: "Ctrl+Enter or ⌘+Enter" },
    "Run",
  );
  const explainButton = button("Explain", explain, { title: "How the query would run" });
  const cancelButton = button("Cancel", cancel, { title: "Stop the query, here and on the server", hidden: true });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const outcome = el("div", { class: "outcome", "aria-live": "polite" });
  const tableButton = button("Table", () => choose("table"), { class: "segment" });
  const graphButton = button("Graph", () => choose("graph"), { class: "segment" });

  fill(
    root,
    el("div", { class: "bar" }, field("Query", stored), whichField),
    about,
    editor.element,
    params.element,
    el(
      "div",
      { class: "row" },
      runButton,
      explainButton,
      cancelButton,
      el("span", { class: "hint keys", text: "Ctrl+Enter runs" }),
    ),
    problem,
    outcome,
  );

  // ---- what is asked

  function storedEntry() {
    return catalog.find(({ name }) => name === stored.value) ?? null;
  }

  function textChanged(text) {
    isTouched = true;
    const queries = declaredQueries(text);
    setOptions(which, queries.map(({ name }) => [name, name]));
    whichField.hidden = queries.length < 2 || storedEntry() !== null;
    declareParams();
  }

  function chosenQuery() {
    const queries = declaredQueries(editor.text);
    return queries.find(({ name }) => name === which.value) ?? queries[0] ?? null;
  }

  function declareParams() {
    const entry = storedEntry();
    const query = entry ? null : chosenQuery();
    const isMutation = entry ? entry.mutation : (query?.isMutation ?? false);
    params.declare(entry ? catalogParams(entry.params) : (query?.params ?? []));
    runButton.disabled = isMutation;
    explainButton.disabled = entry !== null;
    say(isMutation ? ONLY_READS : "");
  }

  function showStored() {
    const entry = storedEntry();
    editor.element.hidden = entry !== null;
    whichField.hidden = entry !== null || which.options.length < 2;
    about.hidden = !entry?.description;
    about.textContent = entry?.description ?? "";
    declareParams();
  }

  // ---- running

  async function run() {
    if (runButton.disabled) return;
    const entry = storedEntry();
    await attempt("Running…", async (signal) => {
      const query = entry ? null : chosenQuery();
      const sent = params.values();
      const result = entry
        ? await api.invoke(entry.name, { params: sent, first: FIRST_ROWS }, signal)
        : await api.query({ query: editor.text, name: query?.name, params: sent, first: FIRST_ROWS }, signal);
      const entities = query && schema ? entityColumns(query, schema) : NO_ENTITIES;
      answer = { result, entities };
      showAnswer();
      announce(rowsText(result));
    });
  }

  async function explain() {
    await attempt("Explaining…", async (signal) => {
      const asked = { query: editor.text, name: chosenQuery()?.name, params: params.values() };
      const { text } = await api.explain(asked, signal);
      answer = null;
      fill(outcome, el("h2", { text: "Plan" }), el("pre", { class: "source plan", tabindex: 0, text }));
    });
  }

  /** Run something that asks the server, and tell what went wrong where it can be seen. */
  async function attempt(text, action) {
    const signal = running.begin();
    say("");
    editor.setDiagnostics([]);
    fill(outcome, loading(text));
    cancelButton.hidden = false;
    try {
      await action(signal);
    } catch (error) {
      // A newer run has taken the place; what was cancelled has said so already.
      if (isSuperseded(error)) return;
      if (error instanceof BadParameter) {
        fill(outcome);
        say(error.message);
      } else if (error instanceof ApiError) {
        showFailure(error);
      } else {
        throw error;
      }
    } finally {
      if (!signal.aborted) cancelButton.hidden = true;
    }
  }

  /** Close the request: the server stops working for it. */
  function cancel() {
    running.cancel();
    cancelButton.hidden = true;
    answer = null;
    fill(outcome, empty("Cancelled", "The query was stopped before its end."));
    announce("The query was cancelled");
    runButton.focus();
  }

  function showFailure(error) {
    if (!error.diagnostics.length || storedEntry()) {
      fill(outcome, failure(error, error.status === 400 ? null : run));
      return;
    }
    fill(outcome);
    editor.setDiagnostics(error.diagnostics);
    announce(`The query has ${counted(error.diagnostics.length, "error")}`);
  }

  function say(text) {
    problem.hidden = !text;
    problem.textContent = text;
  }

  // ---- the answer

  function choose(next) {
    mode = next;
    showAnswer();
  }

  function showAnswer() {
    if (!answer) return;
    const { result, entities } = answer;
    tableButton.setAttribute("aria-pressed", String(mode === "table"));
    graphButton.setAttribute("aria-pressed", String(mode === "graph"));
    const commit = result.graph_commit_id;
    fill(
      outcome,
      el(
        "div",
        { class: "bar" },
        el("div", { class: "segments", role: "group", "aria-label": "Show as" }, tableButton, graphButton),
        el("span", { class: "count", text: rowsText(result) }),
        commit
          ? button(`at ${shortId(commit)}`, () => showInFull("Commit that was read", commit), { class: "link commit" })
          : null,
        el("span", { class: "push" }, copyButtons(result)),
      ),
      result.truncated ? el("p", { class: "hint more-rows", text: MORE_ROWS }) : null,
      mode === "table" ? tableOf(result, entities) : graphOf(result, entities),
    );
  }

  function rowsText(result) {
    const rows = counted(result.row_count, "row");
    return result.truncated ? `the first ${rows}` : rows;
  }

  function tableOf(result, entities) {
    if (!result.rows.length) return empty("No rows", "The query ran, and nothing matched.");
    return resultTable(result, entities.columns, (type, id) => session.openNode(type, id));
  }

  function graphOf(result, entities) {
    if (!schema || !entities.columns.size) {
      return empty("No nodes in this result", "Return a node variable, such as $p, to see its nodes here.");
    }
    const host = el("div");
    // The canvas needs a size: it is made when its place is on the page.
    requestAnimationFrame(() => {
      if (!host.isConnected) return;
      addRows(createGraphPanel(host, schema), result, entities);
    });
    return host;
  }

  // ---- another graph, branch or token

  async function reload() {
    const signal = preparing.begin();
    running.cancel();
    answer = null;
    fill(outcome, empty("Nothing was asked yet", "Write a query and run it; $parameters get a form."));
    const [read, listed] = await Promise.allSettled([SchemaModel.read(signal), api.storedQueries(signal)]);
    if (signal.aborted) return;
    schema = read.status === "fulfilled" ? read.value : null;
    catalog = listed.status === "fulfilled" ? (listed.value.queries ?? []) : []; // not everybody may see them
    setOptions(stored, [["", "Written here"], ...catalog.map(({ name }) => [name, `stored: ${name}`])]);
    showStored();
    if (read.status === "rejected") fill(outcome, failure(read.reason, reload));
    else if (!isTouched) suggest();
  }

  function suggest() {
    const [first] = schema.nodes;
    if (!first) return;
    const label = schema.label(first.name);
    editor.text = [
      "query first_look() {",
      `  match { $n: ${first.name} }`,
      `  return { $n${label ? `, $n.${label}` : ""} }`,
      "  limit 20",
      "}",
    ].join("\n");
    isTouched = false;
  }

  return { reload };
}
