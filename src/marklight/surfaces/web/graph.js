// Link graph as SVG: a miniature for the rail, and a page of its own. Every node is a link that can be focused.

import { inPath } from "./api.js";
import { counted, draw, make, nameOf, sentence } from "./dom.js";

const MAX_NODES = 80;
const CHARACTER_WIDTH = 6.4; // estimate, to avoid overlapping labels
const HUES = 8; // colours of folders

const title = (node) => node.title || node.path;

// The document in the middle first, then at most so many others.
function arranged(graph, most) {
  const middle = graph.nodes.findIndex((each) => each.path === graph.path && each.collection === graph.collection);
  const order = [middle, ...graph.nodes.keys()].filter((at, seen, all) => at >= 0 && all.indexOf(at) === seen).slice(0, most);
  const at = new Map(order.map((was, is) => [was, is]));
  const edges = graph.edges.filter(({ from, to }) => from !== to && at.has(from) && at.has(to)).map(({ from, to }) => ({ from: at.get(from), to: at.get(to) }));
  return { nodes: order.map((was) => graph.nodes[was]), edges };
}

const lines = (edges, places) => edges.map(({ from, to }) => draw("line", { x1: places[from].x, y1: places[from].y, x2: places[to].x, y2: places[to].y, "data-ends": `${from} ${to}` }));

export function miniature(graph, { href }) {
  const { nodes, edges } = arranged(graph, 15);
  const wide = 200, high = 150;
  const places = layOut(nodes.length, edges, wide - 24, high - 24);
  return draw("svg", { class: "drawing", viewBox: `${-wide / 2} ${-high / 2} ${wide} ${high}`, role: "group", "aria-label": `${counted(nodes.length - 1, "document")} linked with ${title(nodes[0])}` },
    ...lines(edges, places),
    ...nodes.map((node, at) => draw("a", { href: href({ open: nameOf(node) }), "data-open": nameOf(node), "aria-label": title(node), class: at ? null : "first", transform: `translate(${places[at].x} ${places[at].y})` },
      draw("title", {}, title(node)), draw("circle", { r: 12, class: "reach" }), draw("circle", { r: at ? 4 : 6 }))));
}

export async function graphPage(root, state, { href, get, offline }) {
  root.replaceChildren(make("p", { class: "soft", role: "status" }, "Loading …"));
  try {
    inPath(state.graph);
    const graph = await get(`/api/graph?${new URLSearchParams({ path: state.graph, depth: state.depth, limit: MAX_NODES })}`);
    const { nodes, edges } = arranged(graph, MAX_NODES);
    const folders = [...new Set(nodes.map((node) => nameOf(node).split("/").slice(0, -1).join("/")))].sort();
    const left = (graph.more?.nodes ?? graph.more?.documents ?? 0) + graph.nodes.length - nodes.length;
    root.replaceChildren(
      make("div", { class: "tools" },
        make("h2", {}, `Around ${title(nodes[0])}`),
        make("p", { role: "group", "aria-label": "Depth" }, "Links away: ", ...[1, 2, 3].map((depth) => make("a", { class: "button", href: href({ graph: state.graph, depth }), "data-graph": state.graph, "data-depth": depth, "aria-current": depth === state.depth ? "true" : null }, String(depth)))),
        make("p", { class: "soft" }, nodes.length > 1 ? `${counted(nodes.length - 1, "document")}${left > 0 ? `, ${counted(left, "more", "more")} not shown` : ""}. Click a node to open its document.` : "This document has no links to or from other documents."),
        make("ul", { class: "legend" }, ...folders.slice(0, HUES).map((folder, at) => make("li", { class: `hue-${at}` }, folder || "top folder")))),
      picture(nodes, edges, folders, root, href));
  } catch (problem) {
    if (problem.offline) offline();
    root.replaceChildren(make("p", { class: "soft" }, sentence(problem.message)));
  }
}

function picture(nodes, edges, folders, root, href) {
  const wide = Math.max(300, root.clientWidth - 32), high = Math.max(320, Math.min(root.clientHeight - 150, 800));
  const margin = { x: Math.min(90, wide / 5), y: 34 };
  const places = layOut(nodes.length, edges, wide - 2 * margin.x, high - 2 * margin.y, 260);
  const labels = labelled(nodes, places, wide);
  const drawing = draw("svg", { class: "drawing", viewBox: `${-wide / 2} ${-high / 2} ${wide} ${high}`, role: "group", "aria-label": `Documents linked with ${title(nodes[0])}` },
    ...lines(edges, places),
    ...nodes.map((node, at) => {
      const name = nameOf(node), size = at ? 4 + Math.min(5, Math.sqrt(node.degree ?? 1)) : 10;
      const hue = folders.indexOf(name.split("/").slice(0, -1).join("/")) % HUES;
      return draw("a", { href: href({ open: name }), "data-open": name, "data-at-node": at, "aria-label": title(node), class: [`hue-${hue}`, at ? "" : "first", labels[at] ? "" : "quiet-label"].join(" ").trim(), transform: `translate(${places[at].x} ${places[at].y})` },
        draw("title", {}, `${title(node)} – ${name}`),
        draw("circle", { r: 16, class: "reach" }), draw("circle", { r: size }),
        draw("text", { y: labels[at] < 0 ? size + 15 : -size - 6, "text-anchor": "middle", "aria-hidden": "true" }, short(title(node))));
    }));
  // Links of the node below the pointer stand out.
  const light = (event) => {
    const at = event.target.closest?.("a")?.getAttribute("data-at-node");
    for (const line of drawing.querySelectorAll("line")) line.classList.toggle("lit", at !== null && at !== undefined && line.dataset.ends.split(" ").includes(at));
  };
  for (const kind of ["pointerover", "focusin"]) drawing.addEventListener(kind, light);
  return drawing;
}

const short = (text) => (text.length > 26 ? `${text.slice(0, 25).trimEnd()}…` : text);

// Position of each label: 1 above the node, -1 below, 0 if it would overlap; then it is shown on hover and focus only.
function labelled(nodes, places, wide) {
  const taken = places.map(({ x, y }) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
  const order = [...nodes.keys()].sort((one, other) => (one === 0 ? -1 : other === 0 ? 1 : (nodes[other].degree ?? 0) - (nodes[one].degree ?? 0)));
  const sides = nodes.map(() => 0);
  for (const at of order) {
    const half = (short(title(nodes[at])).length * CHARACTER_WIDTH) / 2, { x, y } = places[at];
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

// Force-directed layout (Fruchterman and Reingold, 1991): links attract, nodes repel, the first node stays in the centre.

const ROUNDS = 320;

function layOut(count, edges, width, height, longest = 60) { // of a link, in pixels, on average
  const places = Array.from({ length: count }, (_, at) => {
    // Start on a sunflower spiral, so that the layout is deterministic.
    const turn = at * 2.39996, far = Math.sqrt(at / Math.max(1, count)) * 0.4;
    return { x: far * Math.cos(turn), y: far * Math.sin(turn) };
  });
  const wished = 0.9 / Math.sqrt(count + 1);
  for (let round = 0; round < ROUNDS; round++) step(places, edges, wished, 0.12 * (1 - round / ROUNDS));
  return fitted(places, edges, width, height, longest);
}

function step(places, edges, wished, most) {
  const moves = places.map(() => ({ x: 0, y: 0 }));
  for (let one = 0; one < places.length; one++) {
    for (let other = one + 1; other < places.length; other++) {
      const { x, y, far } = between(places[one], places[other], one);
      const push = (wished * wished) / far;
      shift(moves, one, other, (x / far) * push, (y / far) * push);
    }
  }
  for (const { from, to } of edges) {
    const { x, y, far } = between(places[from], places[to], from);
    const pull = (far * far) / wished;
    shift(moves, from, to, (-x / far) * pull, (-y / far) * pull);
  }
  for (const [at, move] of moves.entries()) {
    if (at === 0) continue;
    // Gravity keeps unlinked nodes near the centre.
    move.x -= places[at].x * 0.35;
    move.y -= places[at].y * 0.35;
    const long = Math.hypot(move.x, move.y) || 1;
    const far = Math.min(long, most);
    places[at].x += (move.x / long) * far;
    places[at].y += (move.y / long) * far;
  }
}

function between(one, other, salt) {
  const x = one.x - other.x || 1e-4 * (salt + 1), y = one.y - other.y || 1e-4;
  return { x, y, far: Math.max(0.01, Math.hypot(x, y)) };
}

function shift(moves, one, other, x, y) {
  moves[one].x += x; moves[one].y += y;
  moves[other].x -= x; moves[other].y -= y;
}

function fitted(places, edges, width, height, longest) {
  const [left, right] = ends(places.map((each) => each.x)), [top, bottom] = ends(places.map((each) => each.y));
  // Limits the length of links in small graphs.
  const long = edges.reduce((sum, { from, to }) => sum + between(places[from], places[to], 0).far, 0) / (edges.length || 1);
  const most = longest / (long || 1);
  const across = Math.min(width / (right - left), most), down = Math.min(height / (bottom - top), most);
  return places.map((each) => ({ x: (each.x - (left + right) / 2) * across, y: (each.y - (top + bottom) / 2) * down }));
}

const ends = (all) => [Math.min(...all) - 0.01, Math.max(...all) + 0.01];
