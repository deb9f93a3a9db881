// Runs before the first paint, so that a chosen theme does not flash. Not a module: those run later.
"use strict";

(() => {
  const KEY = "omnigraph.theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is forbidden: the system decides
    }
  }

  function current() {
    return document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
  }

  function announce() {
    window.dispatchEvent(new CustomEvent("themechange", { detail: current() }));
  }

  function choose(theme) {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // The choice lasts as long as the page.
    }
    announce();
  }

  const chosen = stored();
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  system.addEventListener("change", announce);
  window.omnigraphTheme = { current, choose };
})();
