// Runs beside the page: takes the microphone's samples at the browser's rate, gives 16-bit ones at the server's.

const CROSSINGS = 16; // of the kernel to either side
const STEPS = 64; // of the kernel's table from one crossing to the next

class Capture extends AudioWorkletProcessor {
  constructor(options) {
    super();
    const wanted = options.processorOptions.rate;
    this.piece = options.processorOptions.piece;
    this.ratio = sampleRate / wanted;
    // Below half of the lower of both rates, or what lies above would come back as something else.
    this.width = Math.max(1, this.ratio) / 0.95;
    this.reach = Math.ceil(CROSSINGS * this.width);
    this.kernel = Float32Array.from({ length: CROSSINGS * STEPS + 2 }, (_, index) => {
      const x = index / STEPS;
      if (x >= CROSSINGS) return 0;
      const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
      return (sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / CROSSINGS))) / this.width;
    });
    this.heard = new Float32Array(this.reach);
    this.next = this.reach; // where in `heard` the next sample lies
    this.made = [];
    this.port.onmessage = () => {
      this.give(this.made.length);
      this.port.postMessage(null);
      this.ended = true;
    };
  }

  process(inputs) {
    if (this.ended) return false;
    const channels = inputs[0];
    if (channels.length === 0) return true;
    const mono = new Float32Array(channels[0].length);
    for (const channel of channels) {
      for (let i = 0; i < mono.length; i++) mono[i] += channel[i] / channels.length;
    }
    const heard = new Float32Array(this.heard.length + mono.length);
    heard.set(this.heard);
    heard.set(mono, this.heard.length);
    while (this.next + this.reach < heard.length) {
      this.made.push(this.sample(heard, this.next));
      this.next += this.ratio;
    }
    const unused = Math.max(0, Math.floor(this.next) - this.reach);
    this.heard = heard.slice(unused);
    this.next -= unused;
    while (this.made.length >= this.piece) this.give(this.piece);
    return true;
  }

  sample(heard, place) {
    let sum = 0;
    const last = Math.floor(place + this.reach);
    for (let i = Math.ceil(place - this.reach); i <= last; i++) {
      const x = (Math.abs(i - place) / this.width) * STEPS;
      const whole = Math.floor(x);
      if (whole > CROSSINGS * STEPS) continue;
      const part = x - whole;
      sum += heard[i] * (this.kernel[whole] * (1 - part) + this.kernel[whole + 1] * part);
    }
    return sum;
  }

  give(count) {
    const piece = Int16Array.from(this.made.splice(0, count), (x) => Math.max(-32768, Math.min(32767, Math.round(x * 32768))));
    if (piece.length) this.port.postMessage(piece, [piece.buffer]);
  }
}

registerProcessor("capture", Capture);
