// Force-directed layout (Fruchterman and Reingold, 1991): links attract, nodes repel, the first node stays in the centre.

const ROUNDS = 320;
const LONGEST = 150; // pixels of a link, on average

export function layOut(count, edges, width, height) {
  const places = Array.from({ length: count }, (_, at) => {
    // Start on a sunflower spiral, so that the layout is deterministic.
    const turn = at * 2.39996, far = Math.sqrt(at / Math.max(1, count)) * 0.4;
    return { x: far * Math.cos(turn), y: far * Math.sin(turn) };
  });
  const wished = 0.9 / Math.sqrt(count + 1);
  for (let round = 0; round < ROUNDS; round++) step(places, edges, wished, 0.12 * (1 - round / ROUNDS));
  return fitted(places, edges, width, height);
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

function fitted(places, edges, width, height) {
  const [left, right] = ends(places.map((each) => each.x)), [top, bottom] = ends(places.map((each) => each.y));
  // Limits the length of links in small graphs.
  const long = edges.reduce((sum, { from, to }) => sum + between(places[from], places[to], 0).far, 0) / (edges.length || 1);
  const most = LONGEST / (long || 1);
  const across = Math.min(width / (right - left), most), down = Math.min(height / (bottom - top), most);
  return places.map((each) => ({ x: (each.x - (left + right) / 2) * across, y: (each.y - (top + bottom) / 2) * down }));
}

const ends = (all) => [Math.min(...all) - 0.01, Math.max(...all) + 0.01];
