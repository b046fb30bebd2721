// Where audio comes from: each source calls `give` with 16-bit samples as time passes, then `end`.

const PIECE_SECONDS = 0.08;

export async function microphone(rate, give, end) {
  const wanted = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const stream = await navigator.mediaDevices.getUserMedia({ audio: wanted });
  const context = new AudioContext();
  await context.audioWorklet.addModule("capture.js");
  const node = new AudioWorkletNode(context, "capture", {
    numberOfOutputs: 0,
    processorOptions: { rate, piece: Math.round(rate * PIECE_SECONDS) },
  });
  const finished = new Promise((resolve) => {
    node.port.onmessage = (event) => (event.data === null ? resolve() : give(event.data));
  });
  context.createMediaStreamSource(stream).connect(node);
  await context.resume();
  return async () => {
    node.port.postMessage("end");
    await finished;
    for (const track of stream.getTracks()) track.stop();
    await context.close();
    end();
  };
}

// A recording, as slowly as it was spoken: only so can one see what is known when.
export async function recording(data, rate, aloud, give, end) {
  const decoder = new OfflineAudioContext(1, 1, rate);
  const audio = await decoder.decodeAudioData(data);
  const mono = new Float32Array(audio.length);
  for (let channel = 0; channel < audio.numberOfChannels; channel++) {
    const own = audio.getChannelData(channel);
    for (let i = 0; i < mono.length; i++) mono[i] += own[i] / audio.numberOfChannels;
  }
  const samples = Int16Array.from(mono, (x) => Math.max(-32768, Math.min(32767, Math.round(x * 32768))));
  const stopSound = aloud ? await play(audio) : () => {};
  const piece = Math.round(rate * PIECE_SECONDS);
  const began = performance.now();
  let sent = 0;
  let stopped = false;
  const stop = () => {
    if (stopped) return;
    stopped = true;
    clearInterval(timer);
    stopSound();
    end();
  };
  const timer = setInterval(() => {
    const due = ((performance.now() - began) / 1000) * rate;
    while (sent < samples.length && Math.min(sent + piece, samples.length) <= due) {
      give(samples.slice(sent, sent + piece));
      sent += piece;
    }
    if (sent >= samples.length) stop();
  }, 20);
  return stop;
}

async function play(audio) {
  const context = new AudioContext();
  const node = new AudioBufferSourceNode(context, { buffer: audio });
  node.connect(context.destination);
  node.onended = () => context.close();
  await context.resume();
  node.start();
  return () => node.stop();
}
