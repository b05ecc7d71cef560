// Elements as values, and the change of what is shown into them.
//
// A view is a function from data to a tree of `h(...)`. `show` changes what is on the page into that
// tree and keeps every element that stays: so focus, scrolling and transitions stay, too. Text is set
// as text, never as markup, and events are heard at the document (`data-action`), so elements hold no
// listeners.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "polyline", "line", "rect", "title"]);

// properties: attributes; `style` is an object of CSS properties; `key` tells siblings apart.
export function h(tag, properties, ...children) {
  return { tag, properties: properties || {}, children: flat(children) };
}

function flat(children) {
  const list = [];
  for (const child of children) {
    if (Array.isArray(child)) list.push(...flat(child));
    else if (child !== null && child !== undefined && child !== false && child !== "") {
      list.push(typeof child === "object" ? child : String(child));
    }
  }
  return list;
}

export function show(root, ...children) {
  changeChildren(root, flat(children));
}

function make(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const element = SVG_TAGS.has(node.tag)
    ? document.createElementNS(SVG, node.tag)
    : document.createElement(node.tag);
  element.shownKey = node.properties.key;
  setProperties(element, node.properties);
  changeChildren(element, node.children);
  return element;
}

function fits(element, node) {
  if (typeof node === "string") return element.nodeType === Node.TEXT_NODE;
  return element.nodeType === Node.ELEMENT_NODE
    && element.localName === node.tag
    && element.shownKey === node.properties.key;
}

function change(element, node) {
  if (typeof node === "string") {
    if (element.data !== node) element.data = node;
    return;
  }
  setProperties(element, node.properties);
  changeChildren(element, node.children);
}

function changeChildren(parent, nodes) {
  const wanted = new Set(nodes.map((node) => (typeof node === "string" ? undefined : node.properties.key)));
  const keyed = new Map();
  for (const child of [...parent.childNodes]) {
    if (child.shownKey === undefined) continue;
    if (wanted.has(child.shownKey)) keyed.set(child.shownKey, child);
    else child.remove(); // first, so that those that stay need not be moved, which costs the focus
  }
  let at = parent.firstChild;
  for (const node of nodes) {
    const key = typeof node === "string" ? undefined : node.properties.key;
    const known = key === undefined ? undefined : keyed.get(key);
    if (known && fits(known, node)) {
      if (known === at) at = at.nextSibling;
      else parent.insertBefore(known, at);
      keyed.delete(key);
      change(known, node);
      continue;
    }
    if (at && fits(at, node)) {
      const next = at.nextSibling;
      change(at, node);
      at = next;
    } else {
      parent.insertBefore(make(node), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function setProperties(element, properties) {
  const before = element.shownProperties || {};
  for (const name of Object.keys(before)) {
    if (!(name in properties) && name !== "key" && name !== "style" && name !== "value") {
      element.removeAttribute(name);
    }
  }
  for (const [name, value] of Object.entries(properties)) {
    if (name === "key" || before[name] === value) continue;
    if (name === "style") setStyle(element, before.style || {}, value);
    else if (name === "value") { if (element !== document.activeElement) element.value = value; }
    else if (value === false || value === null || value === undefined) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.shownProperties = properties;
}

function setStyle(element, before, style) {
  for (const name of Object.keys(before)) if (!(name in style)) element.style.removeProperty(name);
  for (const [name, value] of Object.entries(style)) {
    if (before[name] !== value) element.style.setProperty(name, value);
  }
}
