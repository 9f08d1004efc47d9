/* Light or dark: what the system says, until the reader chooses. Not a module, so that it runs before the
   first paint. A browser that refuses to remember still gets its choice for this visit. */
"use strict";

(() => {
  const root = document.documentElement;
  const recall = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* a private window */ } };
  const chosen = recall();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    const show = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      remember(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  });
})();
