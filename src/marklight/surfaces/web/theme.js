// Light or dark theme: that of the system, until the user chooses one.
(() => {
  const KEPT = "marklight-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  // Without storage, the choice lasts until the page is closed.
  const kept = () => { try { return localStorage.getItem(KEPT); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(KEPT, theme); } catch { /* as above */ } };

  if (["light", "dark"].includes(kept())) root.dataset.theme = kept();
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Use ${dark() ? "light" : "dark"} colours`); };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      keep(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  });
})();
