// Finds and creates elements. Text always becomes a text node, never HTML.

export function element(id) {
  return document.getElementById(id);
}

// make("p", { className: "note" }, "text", childNode)
export function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

export function show(node, isShown) {
  node.hidden = !isShown;
}
