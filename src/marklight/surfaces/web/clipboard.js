// Copies a reference such as path:10-40 to the clipboard.

export async function copy(text, button) {
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  button.textContent = (await copied(text)) ? "Copied" : "Copy failed";
  setTimeout(() => { button.textContent = before; }, 1500);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard API is not available over plain HTTP from another machine.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "visually-hidden";
    document.body.append(field);
    const focused = document.activeElement;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return done;
  }
}
