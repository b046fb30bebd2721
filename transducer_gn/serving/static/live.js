// The page: one stream at a time, from a microphone, a file or a sentence, to all of the server's systems.

import { Panel } from "./panel.js";
import { microphone, recording } from "./sources.js";

const RATE = 16000;
const ANNOUNCE_MS = 1500;
const $ = (id) => document.getElementById(id);
const controls = { microphone: $("microphone"), file: $("file"), play: $("play"), stop: $("stop") };
let panels = [];
let running = null; // the stream under way
let sentences = [];
let unsaid = []; // what screen readers are yet to be told

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// Screen readers hear what has settled and what was changed, not every guess in between.
function announce(name, text) {
  unsaid.push(panels.length > 1 ? `${name}: ${text}` : text);
}

setInterval(() => {
  if (!unsaid.length) return;
  const line = document.createElement("p");
  line.textContent = unsaid.splice(0).join(". ");
  $("spoken").append(line);
  while ($("spoken").children.length > 20) $("spoken").firstElementChild.remove();
}, ANNOUNCE_MS);

class Stream {
  constructor(spans) {
    this.sent = []; // seconds of audio, and when they had been sent
    this.seconds = 0;
    this.finished = new Promise((resolve) => (this.finish = resolve));
    for (const panel of panels) panel.clear(spans);
    const address = new URL("stream?readings=1", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    this.socket = new WebSocket(address);
    this.socket.onmessage = (event) => this.hear(JSON.parse(event.data));
    this.socket.onclose = (event) => this.closed(event);
    this.opened = new Promise((resolve) => (this.ready = resolve));
  }

  hear(message) {
    if (message.type === "ready") this.ready(true);
    else if (message.type === "error") this.problem = message.sentence;
    else if (message.type === "text") {
      const now = performance.now();
      while (this.sent.length > 1 && this.sent[0].seconds < message.seconds - 1) this.sent.shift();
      const complete = this.sent.find((each) => each.seconds >= message.seconds - 0.001);
      panels[message.system].update(message, complete ? (now - complete.at) / 1000 : 0);
    }
  }

  give(samples) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.socket.send(samples);
    this.seconds += samples.length / RATE;
    this.sent.push({ seconds: this.seconds, at: performance.now() });
  }

  end() {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "end" }));
  }

  closed(event) {
    this.ready(false);
    if (this.problem) this.problem = `The server says: ${this.problem}.`;
    else if (event.code !== 1000) this.problem = "The connection to the server is lost.";
    this.finish();
  }
}

async function listen(source, what, control, spans = {}) {
  if (running) await stop();
  pressed(control === controls.microphone);
  const stream = new Stream(spans);
  running = stream;
  controls.stop.disabled = false;
  say("Connecting …");
  if (await stream.opened) {
    try {
      stream.stop = await source((samples) => stream.give(samples), () => stream.end());
      say(what);
    } catch (error) {
      stream.problem = explain(error);
      stream.socket.close();
    }
  }
  await stream.finished;
  const { problem } = stream;
  // The source goes on until it is told that nobody listens.
  if (stream.stop) await stream.stop();
  if (running === stream) running = null;
  // A button that is switched off loses the keyboard's focus.
  if (running === null && document.activeElement === controls.stop) control.focus();
  controls.stop.disabled = running === null;
  if (running === null) pressed(false);
  say(problem ?? "Done.", Boolean(problem));
}

function explain(error) {
  if (error.name === "NotAllowedError") return "The browser does not let this page use the microphone.";
  if (error.name === "NotFoundError") return "There is no microphone.";
  if (error.name === "EncodingError") return "The browser cannot read this file as audio.";
  return `That did not work: ${error.message}.`;
}

async function stop() {
  const stream = running;
  if (!stream) return;
  if (stream.stop) {
    await stream.stop();
    stream.stop = null;
  } else stream.socket.close();
  await stream.finished;
}

function pressed(now) {
  controls.microphone.setAttribute("aria-pressed", String(now));
  controls.microphone.querySelector(".label").textContent = now ? "Listening" : "Microphone";
}

function saidText(text) {
  $("said").hidden = !text;
  $("said").querySelector("q").textContent = text ?? "";
}

controls.microphone.onclick = async () => {
  if (controls.microphone.getAttribute("aria-pressed") === "true") return stop();
  saidText(null);
  if (!navigator.mediaDevices) return say("Browsers give the microphone only to pages of this machine or over https.", true);
  const source = (give, end) => microphone(RATE, give, end);
  return listen(source, "Listening to the microphone.", controls.microphone);
};

controls.file.onchange = async () => {
  const [file] = controls.file.files;
  if (!file) return;
  controls.file.value = "";
  saidText(null);
  const data = await file.arrayBuffer();
  const source = (give, end) => recording(data, RATE, $("aloud").checked, give, end);
  await listen(source, `Listening to ${file.name}.`, controls.file);
};

controls.play.onclick = async () => {
  const sentence = sentences[$("sentence").value];
  saidText(sentence.text);
  const source = async (give, end) => {
    const data = await (await fetch(sentence.audio)).arrayBuffer();
    return recording(data, RATE, $("aloud").checked, give, end);
  };
  await listen(source, `Listening to ${sentence.name}.`, controls.play, sentence.spans);
};

controls.stop.onclick = stop;

async function begin() {
  const systems = await (await fetch("systems.json")).json();
  panels = systems.map((system) => new Panel($("panel"), system, announce));
  $("panels").classList.toggle("two", systems.length > 1);
  $("panels").append(...panels.map((panel) => panel.root));
  sentences = await (await fetch("sentences.json")).json();
  $("sentences").hidden = sentences.length === 0;
  sentences.forEach((sentence, index) => $("sentence").append(new Option(sentence.text, index)));
  document.body.dataset.ready = "true";
}

begin().catch(() => say("The server does not answer.", true));
