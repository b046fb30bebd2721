// The picture of competing readings: the share of the beam's weight of each word where hypotheses disagree, over time.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 8;
const GAP = 0.13; // seconds without a point after which a line breaks
const SMALL = 0.04; // what never had more than this share is not drawn
const LEAST = 4; // seconds that the picture shows at least
const MOST = 12; // and at most

export class Readings {
  constructor(svg) {
    this.svg = svg;
    this.clear();
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  clear(spans = {}) {
    this.lines = new Map(); // by place and word
    this.spans = Object.entries(spans);
    this.seconds = 0;
    this.draw();
  }

  add(disputes, seconds) {
    this.seconds = Math.max(this.seconds, seconds);
    for (const { seconds: at, place, shares } of disputes) {
      for (const [word, share] of Object.entries(shares)) {
        if (word === "") continue;
        const key = `${place} ${word}`;
        if (!this.lines.has(key)) this.lines.set(key, { place, word, most: 0, points: [] });
        const line = this.lines.get(key);
        line.points.push([at, share]);
        line.most = Math.max(line.most, share);
      }
    }
    for (const [key, line] of this.lines) {
      if (line.points.at(-1)[0] < this.seconds - MOST) this.lines.delete(key);
    }
    this.draw();
  }

  // What the last dispute of several words came to, in words.
  standing() {
    const disputes = [...this.byPlace().values()].filter((lines) => lines.length > 1).flat();
    const newest = Math.max(...disputes.map((line) => line.points.at(-1)[0]));
    const now = disputes.filter((line) => line.points.at(-1)[0] > newest - 0.001);
    now.sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1]);
    return now.map((line) => `${line.word} ${Math.round(100 * line.points.at(-1)[1])} %`).join("  ·  ");
  }

  draw() {
    const width = this.svg.clientWidth || 600;
    const height = this.svg.clientHeight || 176;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const until = Math.max(LEAST, this.seconds);
    const from = Math.max(0, until - MOST);
    const x = (seconds) => LEFT + ((seconds - from) / (until - from)) * (width - LEFT - RIGHT);
    const y = (share) => TOP + (1 - share) * (height - TOP - BOTTOM);
    const made = [];
    this.spans.forEach(([name, [start, end]], index) => {
      if (start > this.seconds || end < from) return;
      const box = { x: x(Math.max(start, from)), y: TOP, height: y(0) - TOP, class: `span${index % 2}` };
      made.push(element("rect", { ...box, width: Math.max(0, x(Math.min(end, this.seconds)) - box.x) }, name));
    });
    for (const share of [0, 0.5, 1]) {
      made.push(element("line", { x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share), class: "grid" }));
      made.push(label(`${100 * share} %`, { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }));
    }
    const step = until - from > 6 ? 2 : 1;
    for (let second = Math.ceil(from / step) * step; second <= until; second += step) {
      made.push(label(`${second} s`, { x: x(second), y: height - 4, "text-anchor": second > until - 0.3 ? "end" : "middle" }));
    }
    made.push(...this.drawLines(x, y, from));
    this.svg.replaceChildren(...made);
    this.svg.setAttribute("aria-label", `Weight of competing readings over time. ${this.standing()}`);
  }

  // The lines that are worth showing, together if they are about the same word.
  byPlace() {
    const places = new Map();
    for (const line of this.lines.values()) {
      if (line.most <= SMALL) continue;
      if (!places.has(line.place)) places.set(line.place, []);
      places.get(line.place).push(line);
    }
    return places;
  }

  drawLines(x, y, from) {
    const made = [];
    const names = [];
    for (const lines of this.byPlace().values()) {
      const competing = lines.length > 1;
      lines.slice(0, 4).forEach((line, index) => {
        const kind = competing ? `r${index}` : "faint";
        let path = "";
        let last = -Infinity;
        for (const [at, share] of line.points) {
          if (at < from) continue;
          path += `${at - last > GAP ? "M" : "L"}${x(at).toFixed(1)} ${y(share).toFixed(1)}`;
          last = at;
        }
        if (!path) return;
        made.push(element("path", { d: path, class: `reading ${kind}` }, line.word));
        const [at, share] = line.points.at(-1);
        // Names only of what lasted, and not one upon the other.
        if (!competing || line.points.length < 6) return;
        const place = { x: Math.max(x(at) - 4, LEFT + 40), y: share > 0.85 ? y(share) + 15 : y(share) - 6 };
        if (names.some((other) => Math.abs(other.x - place.x) < 48 && Math.abs(other.y - place.y) < 13)) return;
        names.push(place);
        made.push(label(line.word, { ...place, class: `name ${kind}`, "text-anchor": "end" }));
      });
    }
    return made;
  }
}

function element(name, attributes, title) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (title) made.append(Object.assign(document.createElementNS(SVG, "title"), { textContent: title }));
  return made;
}

function label(text, attributes) {
  const made = element("text", attributes);
  made.textContent = text;
  return made;
}
