/**
 * A small text editor: a transparent text area over a coloured copy of its text, with line numbers, and with wavy lines
 * under what the server found wrong.
 */

import { button, el, fill } from "./dom.js";
import { tokens } from "./gq_text.js";

/** `onChange(text)` on every edit, `onRun()` on Ctrl/Cmd+Enter. */
export function createEditor({ onChange, onRun, label }) {
  const area = el("textarea", {
    class: "editor-text",
    "aria-label": label,
    "aria-describedby": "editor-findings",
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    wrap: "off",
    rows: 12,
  });
  const colours = el("pre", { class: "editor-colours", "aria-hidden": "true" });
  const numbers = el("pre", { class: "editor-numbers", "aria-hidden": "true" });
  const findings = el("ol", { class: "findings", id: "editor-findings", "aria-live": "polite" });
  const element = el(
    "div",
    { class: "editor" },
    el("div", { class: "editor-frame" }, numbers, el("div", { class: "editor-page" }, colours, area)),
    findings,
  );
  let diagnostics = [];

  function paint() {
    const lines = area.value.split("\n").length;
    numbers.textContent = Array.from({ length: lines }, (_, place) => place + 1).join("\n");
    fill(colours, paintedText(area.value, diagnostics.map((found) => offset(area.value, found.line, found.column))));
    area.rows = Math.min(Math.max(lines + 1, 8), 24);
    follow();
  }

  function follow() {
    colours.scrollTop = area.scrollTop;
    colours.scrollLeft = area.scrollLeft;
    numbers.scrollTop = area.scrollTop;
  }

  function setDiagnostics(found) {
    diagnostics = found.filter(({ line, column }) => line > 0 && column > 0);
    fill(findings, found.map((diagnostic) => finding(diagnostic, jump)));
    area.setAttribute("aria-invalid", String(found.length > 0));
    paint();
  }

  function jump(line, column) {
    const place = offset(area.value, line, column);
    area.focus();
    area.setSelectionRange(place, place);
  }

  area.addEventListener("input", () => {
    if (diagnostics.length || findings.childElementCount) setDiagnostics([]);
    else paint();
    onChange(area.value);
  });
  area.addEventListener("scroll", follow);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      insert(area, `\n${indentation(area)}`);
    }
  });

  return {
    element,
    setDiagnostics,
    get text() {
      return area.value;
    },
    set text(text) {
      area.value = text;
      setDiagnostics([]);
      onChange(text);
    },
  };
}

function finding(diagnostic, jump) {
  const { line, column, code, message, hint } = diagnostic;
  return el(
    "li",
    {},
    button(`${line}:${column}`, () => jump(line, column), { class: "place", title: "Go to this place" }),
    el("span", { class: "code", text: code }),
    el("span", { text: message }),
    hint ? el("span", { class: "hint", text: hint }) : null,
  );
}

/** The text as coloured pieces; the piece at each of the `marks` (offsets) is underlined. */
function paintedText(text, marks) {
  const found = tokens(text);
  const marked = markedTokens(found, marks);
  const pieces = found.map((token) => {
    const { kind, text: piece, start } = token;
    const isMarked = marked.has(token);
    if (kind === "space" && isMarked) return paintedSpace(piece, marks.map((mark) => mark - start));
    return el("span", { class: isMarked ? `${kind} wrong` : kind, text: piece });
  });
  // Something may be missing at the end of the text; the line break keeps the last line as high as that of the area.
  const isEndMarked = marks.some((mark) => mark >= text.length);
  return [...pieces, el("span", { class: isEndMarked ? "wrong" : "end", text: isEndMarked ? " " : "" }), "\n"];
}

/** The tokens at the marks; `$p.title` is wrong as a whole. */
function markedTokens(found, marks) {
  const marked = new Set();
  for (const [place, token] of found.entries()) {
    if (!marks.some((mark) => mark >= token.start && mark < token.start + token.text.length)) continue;
    marked.add(token);
    const [dot, name] = found.slice(place + 1, place + 3);
    if (token.kind === "variable" && dot?.text === "." && name) marked.add(dot).add(name);
  }
  return marked;
}

function paintedSpace(space, marks) {
  return Array.from(space, (character, place) => {
    if (!marks.includes(place)) return character;
    return el("span", { class: "wrong", text: character === "\n" ? " \n" : character });
  }).map((piece) => (typeof piece === "string" ? document.createTextNode(piece) : piece));
}

/** The place of a line and column, both from 1; columns count characters, as the server does, not UTF-16 units. */
function offset(text, line, column) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0);
  const start = Array.from(lines[line - 1] ?? "").slice(0, column - 1).join("");
  return before + start.length;
}

function indentation(area) {
  const before = area.value.slice(0, area.selectionStart);
  const [space] = /^[ \t]*/.exec(before.slice(before.lastIndexOf("\n") + 1));
  return before.trimEnd().endsWith("{") ? `${space}  ` : space;
}

/** Insert text as if it was typed, so that it can be undone. */
function insert(area, text) {
  // The one way to insert text that undo knows about; all browsers have it.
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
  }
}
