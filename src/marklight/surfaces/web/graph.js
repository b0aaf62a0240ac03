// Link graph around a document as SVG; every node is a link that can be focused.

import { counted, draw, make } from "./dom.js";
import { layOut } from "./graph_layout.js";

const MAX_NODES = 60;
const MARGIN = { x: 90, y: 34 };
const CHARACTER_WIDTH = 6.4; // estimate, to avoid overlapping labels

export function graphView(graph, { href, named, width }) {
  const middle = graph.nodes.findIndex((each) => each.path === graph.path && each.collection === graph.collection);
  const order = [middle, ...graph.nodes.keys()].filter((at, seen, all) => at >= 0 && all.indexOf(at) === seen).slice(0, MAX_NODES);
  const at = new Map(order.map((was, is) => [was, is]));
  const nodes = order.map((was) => graph.nodes[was]);
  const edges = graph.edges.filter(({ from, to }) => from !== to && at.has(from) && at.has(to)).map(({ from, to }) => ({ from: at.get(from), to: at.get(to) }));
  const wide = Math.max(280, width), high = Math.round(Math.min(wide, 240 + 12 * nodes.length, 560));
  const margin = { x: Math.min(MARGIN.x, wide / 5), y: MARGIN.y };
  const places = layOut(nodes.length, edges, wide - 2 * margin.x, high - 2 * margin.y);
  const labels = labelled(nodes, places, wide);
  const title = (each) => each.title || each.path;
  const drawing = draw("svg", { viewBox: `${-wide / 2} ${-high / 2} ${wide} ${high}`, role: "group", "aria-label": `Documents linked with ${title(nodes[0])}` },
    ...edges.map(({ from, to }) => draw("line", { x1: places[from].x, y1: places[from].y, x2: places[to].x, y2: places[to].y })),
    ...nodes.map((each, index) => node(each, places[index], labels[index], index === 0, { href, named, title })));
  if (nodes.length === 1) return [make("p", { class: "soft" }, "This document has no links to or from other documents."), drawing];
  const left = (graph.more?.nodes ?? graph.more?.documents ?? 0) + graph.nodes.length - nodes.length;
  return [drawing, make("p", { class: "soft" }, `${counted(nodes.length - 1, "document")} around this one${left > 0 ? `, ${counted(left, "more", "more")} not shown` : ""}. Click a node to open its document.`)];
}

function node(each, place, label, first, { href, named, title }) {
  const name = named(each);
  const size = first ? 9 : 4 + Math.min(4, Math.sqrt(each.degree ?? 1));
  return draw("a", { href: href({ open: name, view: "graph" }), "data-open": name, "data-view": "graph", "aria-label": title(each), class: [first ? "first" : "", label ? "" : "quiet-label", (each.distance ?? 1) > 1 ? "far" : ""].join(" ").trim() || null, "aria-current": first ? "true" : null, transform: `translate(${place.x} ${place.y})` },
    draw("title", {}, `${title(each)} – ${name}`),
    draw("circle", { r: 16, class: "reach" }),
    draw("circle", { r: size }),
    draw("text", { y: label < 0 ? size + 15 : -size - 6, "text-anchor": "middle", "aria-hidden": "true" }, short(title(each))));
}

const short = (text) => (text.length > 26 ? `${text.slice(0, 25).trimEnd()}…` : text);

// Position of each label: 1 above the node, -1 below, 0 if it would overlap; then it is shown on hover and focus only.
function labelled(nodes, places, wide) {
  const taken = places.map(({ x, y }) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
  const order = [...nodes.keys()].sort((one, other) => (one === 0 ? -1 : other === 0 ? 1 : (nodes[other].degree ?? 0) - (nodes[one].degree ?? 0)));
  const sides = nodes.map(() => 0);
  for (const at of order) {
    const half = (short(nodes[at].title || nodes[at].path).length * CHARACTER_WIDTH) / 2, { x, y } = places[at];
    for (const side of [1, -1]) {
      const box = { left: x - half, right: x + half, top: y - side * 17 - 8, bottom: y - side * 17 + 8 };
      const inside = box.left > -wide / 2 && box.right < wide / 2;
      if (at === 0 || (inside && !taken.some((other) => box.left < other.right && box.right > other.left && box.top < other.bottom && box.bottom > other.top))) {
        sides[at] = side;
        taken.push(box);
        break;
      }
    }
  }
  return sides;
}
