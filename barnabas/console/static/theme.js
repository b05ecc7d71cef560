// Light or dark: as the system has it, or as it was chosen here.

export const theme = { name: stored() || "auto" };

export function nextTheme() {
  theme.name = { auto: "light", light: "dark", dark: "auto" }[theme.name];
  try { localStorage.setItem("theme", theme.name); } catch { /* private windows */ }
  apply();
}

function stored() { try { return localStorage.getItem("theme"); } catch { return null; } }

function apply() {
  if (theme.name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.name;
}

apply();
