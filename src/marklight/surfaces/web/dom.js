// Creates DOM elements; strings become text nodes, never markup, with invisible characters escaped.

import { visible } from "./escaping.js";

const READABLE = ["aria-label", "title"]; // attributes that people read

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : READABLE.includes(name) ? visible(value) : value);
  }
  const given = children.filter((each) => each !== null && each !== undefined);
  element.append(...given.map((each) => (typeof each === "string" ? visible(each) : each)));
  return element;
}

export const counted = (number, singular, plural = `${singular}s`) => `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;
