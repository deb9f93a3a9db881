/** What stands where nothing can be shown (yet): waiting, nothing there, something wrong. */

import { button, el } from "./dom.js";
import { session } from "./session.js";

/** Something is on its way. */
export function loading(text = "Loading…") {
  return el("div", { class: "state", role: "status" }, el("span", { class: "spinner" }), el("p", { text }));
}

/** There is nothing, and what to do about it. */
export function empty(title, hint = "") {
  return el(
    "div",
    { class: "state" },
    el("p", { class: "state-title", text: title }),
    hint ? el("p", { class: "hint", text: hint }) : null,
  );
}

/** A request failed: what, and what helps. `retry` is called by its button. */
export function failure(error, retry = null) {
  const actions = [];
  // A graph that a token may not see answers as one that does not exist.
  if (error.status === 401 || (session.token && [403, 404].includes(error.status))) {
    const text = error.status === 401 ? "Enter a token" : "Enter another token";
    actions.push(button(text, () => session.askForToken(), { class: "primary" }));
  }
  if (retry) actions.push(button("Try again", retry));
  return el(
    "div",
    { class: "state error", role: "alert" },
    el("p", { class: "state-title", text: title(error) }),
    el("p", { class: "state-detail", text: detail(error) }),
    el("div", { class: "row center" }, actions),
  );
}

function title(error) {
  switch (error.status) {
    case 0:
      return "The server does not answer";
    case 401:
      return "This server wants a token";
    case 403:
      return "Your token does not allow this";
    case 404:
      return session.token ? "Not found, or not visible with your token" : "Not found";
    case 410:
      return "This part of the history was cleaned up";
    case 429:
      return "Too many requests at once: wait a moment";
    case 504:
      return "The query took too long";
    default:
      return error.status >= 500 ? "The server failed" : "The request was refused";
  }
}

/** The message of the server; for a query that was stopped what helps on this page, which has no flags and no settings. */
function detail(error) {
  if (error.status !== 504) return error.message;
  const seconds = error.body.query_timeout?.timeout_s;
  const when = seconds === undefined ? "It was stopped." : `The server stopped it after ${seconds} s.`;
  return `${when} Add a filter or a limit, and run it again.`;
}
