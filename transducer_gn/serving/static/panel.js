// One system: its text, what it withdrew, the picture of its readings, its delays.

import { Readings } from "./readings.js";

const SHOWN_WORDS = 300;
const GHOST_MS = 6000; // how long a withdrawn word stays, struck through
const SHOWN_CHANGES = 6;
const KEPT = 500; // delays that medians are taken of

export class Panel {
  constructor(template, system, announce) {
    const root = template.content.firstElementChild.cloneNode(true);
    const find = (selector) => root.querySelector(selector);
    this.root = root;
    this.name = system.name;
    this.announce = announce;
    this.text = find(".text");
    this.standing = find(".standing");
    this.spans = find(".spans");
    this.changes = find(".changes");
    this.measures = Object.fromEntries([...root.querySelectorAll("[data-measure]")].map((dd) => [dd.dataset.measure, dd]));
    find("h2").textContent = system.name;
    this.text.setAttribute("aria-label", `What ${system.name} understands`);
    const kind = system.alpha === 1 ? "local" : system.alpha === 0 ? "global" : "towards global";
    find(".chip").textContent = `α = ${+system.alpha.toFixed(2)}, ${kind}`;
    this.readings = new Readings(find(".readings"));
    this.clear();
  }

  clear(spans) {
    clearTimeout(this.timer);
    this.stable = [];
    this.open = [];
    this.ghosts = [];
    this.delays = [];
    this.behind = [];
    this.withdrawn = 0;
    this.back = 0;
    this.readings.clear(spans);
    const named = Object.keys(spans ?? {}).join(", ");
    this.spans.textContent = named && `; shaded: ${named}`;
    this.standing.textContent = "";
    this.changes.replaceChildren();
    this.changes.hidden = true;
    for (const [name, dd] of Object.entries(this.measures)) dd.textContent = name === "withdrawn" ? "0" : "–";
    this.render();
  }

  // `delay` is in seconds, from when the audio of this message had been sent until now.
  update(message, delay) {
    const before = this.stable.length + this.open.length;
    this.stable.push(...message.stable);
    this.open = message.open;
    const words = this.stable.slice(before).concat(this.open.slice(Math.max(0, before - this.stable.length)));
    for (const word of words) this.behind.push(Math.max(0, message.seconds + delay - word.end));
    const now = performance.now();
    for (const gone of message.withdrawn) {
      this.ghosts.push({ ...gone, since: now });
      this.withdrawn += 1;
      this.back = Math.max(this.back, message.seconds - gone.start);
    }
    this.delays.push(delay);
    this.delays = this.delays.slice(-KEPT);
    this.behind = this.behind.slice(-KEPT);
    this.readings.add(message.readings, message.seconds);
    this.standing.textContent = this.readings.standing();
    this.note(message);
    this.measure();
    this.render(before);
  }

  note(message) {
    const changed = message.withdrawn.filter((gone) => gone.instead);
    for (const { text, instead, start } of changed) {
      const entry = document.createElement("li");
      const back = (message.seconds - start).toFixed(1);
      entry.append(make("del", "word", text), " became ", make("ins", "", instead), `, ${back} s later`);
      this.changes.append(entry);
    }
    while (this.changes.children.length > SHOWN_CHANGES) this.changes.firstElementChild.remove();
    this.changes.hidden = this.changes.children.length === 0;
    const settled = message.stable.map((word) => word.text).join(" ");
    const changes = changed.map(({ text, instead }) => `not ${text}, but ${instead}`).join("; ");
    if (settled || changes) this.announce(this.name, [changes, settled].filter(Boolean).join(". "));
  }

  measure() {
    const { delay, behind, withdrawn, back } = this.measures;
    delay.textContent = `${Math.round(1000 * median(this.delays))} ms`;
    delay.title = `the last one: ${Math.round(1000 * this.delays.at(-1))} ms`;
    if (this.behind.length) behind.textContent = `${median(this.behind).toFixed(2)} s`;
    withdrawn.textContent = String(this.withdrawn);
    if (this.back) back.textContent = `${this.back.toFixed(1)} s`;
  }

  render(known = 0) {
    const now = performance.now();
    this.ghosts = this.ghosts.filter((ghost) => now - ghost.since < GHOST_MS);
    const first = Math.max(0, this.stable.length + this.open.length - SHOWN_WORDS);
    const made = first ? ["… "] : [];
    const words = this.stable.concat(this.open);
    for (let place = first; place <= words.length; place++) {
      for (const ghost of this.ghosts.filter((each) => each.place === place)) {
        const gone = make("del", "word", ghost.text);
        gone.style.animationDelay = `${ghost.since - now}ms`;
        made.push(gone, " ");
      }
      if (place === words.length) break;
      const word = make("span", place < this.stable.length ? "word stable" : "word open", words[place].text);
      if (known && place >= known) word.classList.add("fresh");
      word.title = `${words[place].start.toFixed(2)} to ${words[place].end.toFixed(2)} s`;
      made.push(word, " ");
    }
    this.text.replaceChildren(...made);
    this.text.scrollTop = this.text.scrollHeight;
    clearTimeout(this.timer);
    if (this.ghosts.length) {
      this.timer = setTimeout(() => this.render(), GHOST_MS - (now - this.ghosts[0].since) + 20);
    }
  }
}

function make(name, kind, text) {
  return Object.assign(document.createElement(name), { className: kind, textContent: text });
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
