// The login, where the broker has users.

import { send } from "./asking.js";
import { h } from "./dom.js";

export function loginForm(state) {
  return h("section", { class: "card login", key: "login", "aria-label": "Log in" },
    h("h1", {}, "Log in"),
    h("p", { class: "muted" }, "This broker has users. The console shows what your user may read."),
    h("form", { "data-form": "login", class: "stack" },
      h("label", { class: "field" }, h("span", {}, "User"), h("input", { name: "user", autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" })),
      h("label", { class: "field" }, h("span", {}, "Password"), h("input", { name: "password", type: "password", autocomplete: "current-password", required: true })),
      h("button", { type: "submit", class: "strong", disabled: state.isLoggingIn }, state.isLoggingIn ? "Logging in …" : "Log in")),
    h("p", { role: "alert", class: state.loginProblem ? "note warn" : "" }, state.loginProblem || ""));
}

// Gives whether the login succeeded.
export async function logIn(state, user, password, draw) {
  Object.assign(state, { isLoggingIn: true, loginProblem: "" });
  draw();
  try {
    await send("login", { user, password });
    return true;
  } catch (error) {
    state.loginProblem = error.isAnswer ? error.message : "The broker does not answer.";
    return false;
  } finally {
    state.isLoggingIn = false;
    draw();
  }
}
