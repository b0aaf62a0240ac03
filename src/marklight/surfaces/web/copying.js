// A reference for elsewhere: path:10-40, as every surface of Marklight takes it.

export async function copy(text, button) {
  const before = button.dataset.said ?? button.textContent;
  button.dataset.said = before;
  button.textContent = (await copied(text)) ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP from another machine there is no clipboard but the old way.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    const focused = document.activeElement;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return done;
  }
}
