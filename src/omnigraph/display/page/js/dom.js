/**
 * Elements, made without HTML text: whatever a graph holds is inserted as text, so it can never become markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `attributes` become attributes, except `on` (listeners), `text` (content), `data` (dataset) and values
 * that are false or null, which are left out. Children are elements or text; null is left out.
 */
export function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for the elements of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  const { on = {}, text, data = {}, ...plain } = attributes;
  for (const [name, value] of Object.entries(plain)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  Object.assign(element.dataset, data);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A button; `options` are attributes. */
export function button(label, onClick, options = {}) {
  return el("button", { type: "button", on: { click: onClick }, ...options }, label);
}

/** A choice; `options` are `[value, label]` pairs. */
export function select(options, { value, onChange, ...attributes } = {}) {
  const element = el("select", { on: { change: () => onChange?.(element.value) }, ...attributes });
  setOptions(element, options, value);
  return element;
}

/** Give a choice other options; the value stays if it is among them. */
export function setOptions(element, options, value = element.value) {
  fill(element, options.map(([key, label]) => el("option", { value: key, text: label })));
  if (options.some(([key]) => key === value)) element.value = value;
}

/** A labelled control. */
export function field(label, control, options = {}) {
  return el("label", { class: "field", ...options }, el("span", { text: label }), control);
}

/** Say something to people who cannot see the page change. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  if (announcer) announcer.textContent = text;
}
