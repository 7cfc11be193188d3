// Dark and light theme: the system's preference at first, then the person's choice.

export function themed(changed) {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (on) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    button.setAttribute("aria-pressed", String(on));
    changed();
  };
  const choice = localStorage.getItem("coatcheck/theme");
  apply(choice ? choice === "dark" : dark.matches);
  button.addEventListener("click", () => {
    const on = document.documentElement.dataset.theme !== "dark";
    localStorage.setItem("coatcheck/theme", on ? "dark" : "light");
    apply(on);
  });
  dark.addEventListener("change", ({ matches }) => { if (!localStorage.getItem("coatcheck/theme")) apply(matches); });
}
