// SPDX-License-Identifier: BSL-1.0
//
// What all parts of the page share: the data, elements made of texts (never of markup), and numbers as people read them.
"use strict";

const figures = JSON.parse(document.getElementById("figures-data").textContent);
const timeline = JSON.parse(document.getElementById("timeline-data").textContent);

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for drawings. */
function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") {
      Object.assign(made.style, value);
    } else if (key.startsWith("on")) {
      made.addEventListener(key.slice(2), value);
    } else if (value !== undefined) {
      made.setAttribute(key, value);
    }
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

const colour = (category) => `var(--${category})`;

/** Three digits that count. */
function formatNumber(value) {
  const size = Math.abs(value);
  return size >= 99.95 || size === 0 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** Takes milliseconds. */
function formatTime(ms) {
  const size = Math.abs(ms);
  return size < 5e-6 ? "0" : size >= 999.5 ? `${formatNumber(ms / 1e3)} s`
    : size >= 0.9995 ? `${formatNumber(ms)} ms` : `${formatNumber(ms * 1e3)} µs`;
}

function formatBytes(bytes) {
  return bytes >= 999.5e6 ? `${formatNumber(bytes / 1e9)} GB` : bytes >= 999.5e3 ? `${formatNumber(bytes / 1e6)} MB`
    : bytes >= 999.5 ? `${formatNumber(bytes / 1e3)} kB` : `${bytes} bytes`;
}

function formatShare(part) {
  return `${part >= 0.0995 || part === 0 ? (100 * part).toFixed(0) : (100 * part).toFixed(1)} %`;
}

/** A figure of a verdict, whose unit may be bytes or milliseconds. */
function formatFigure(value, unit) {
  const [first, ...rest] = unit.split(" ");
  const tail = rest.length ? ` ${rest.join(" ")}` : "";
  if (first === "bytes") return formatBytes(value) + tail;
  if (first === "ms") return formatTime(value) + tail;
  if (first === "s") return formatTime(value * 1e3) + tail;
  return `${Number.isInteger(value) ? value : formatNumber(value)}${unit ? ` ${unit}` : ""}`;
}

const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

/** Rank and host, as rows are called. */
function rankName(rank) {
  const host = figures.by_rank[rank] && figures.by_rank[rank].host;
  return host ? `rank ${rank} · ${host}` : `rank ${rank}`;
}

// Spans as typed lists, by row; times in milliseconds.
const trackNames = ["step", "layers", "transfers", "loader", "copies"];
const namedTracks = new Map(timeline.track_names.map(([rank, track, name]) => [`${rank} ${track}`, name]));
const runEnd = Math.max(timeline.end / 1e4, 1e-3);

const rows = timeline.rows.map((row) => {
  const size = row.gaps.length;
  const starts = new Float64Array(size);
  const ends = new Float64Array(size);
  let now = 0;
  for (let i = 0; i < size; ++i) {
    now += row.gaps[i];
    starts[i] = now / 1e4;
    now += row.durations[i];
    ends[i] = now / 1e4;
  }
  const arrivals = new Map();
  for (let i = 0; i < row.arrivals.length; i += 3) {
    arrivals.set(row.arrivals[i], {time: starts[row.arrivals[i]] + row.arrivals[i + 1] / 1e4, rank: row.arrivals[i + 2]});
  }
  return {rank: row.rank, track: row.track, depth: row.depth, starts, ends, labels: Uint32Array.from(row.labels), arrivals};
});
const labels = timeline.labels;
const categories = timeline.categories;
const categoryOf = Uint8Array.from(labels, (label) => label.category);
const isStep = categories.indexOf("step");
/** Of messages between two ranks. */
const messageLabels = new Set([...labels.keys()].filter((i) =>
  labels[i].peer !== undefined && ["send", "receive", "recv"].includes(labels[i].operation)));

/** The steps of each rank, by time: {rank, step, begin, end}. */
const stepsOfRank = Array.from({length: figures.ranks}, () => []);
for (const [rank, step, begin, duration] of figures.steps) {
  stepsOfRank[rank].push({rank, step, begin, end: begin + duration});
}

/** The index of the first value that is greater than `limit`, in a sorted list. */
function firstAbove(list, limit) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The step of a rank at a time, or undefined. */
function stepAt(rank, time) {
  const steps = stepsOfRank[rank] || [];
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].begin > time) high = middle;
    else low = middle + 1;
  }
  const found = steps[low - 1];
  return found && time <= found.end ? found : undefined;
}

/** What a span is called: steps with their number. */
function spanName(row, index) {
  const label = labels[row.labels[index]];
  if (label.category === isStep) {
    const step = stepAt(row.rank, (row.starts[index] + row.ends[index]) / 2);
    if (step) return `${label.name} ${step.step}`;
  }
  return label.name;
}

const passLetters = {"forward": "F", "backward": "B", "gradients of inputs": "I", "gradients of weights": "W"};

/** What is written on a span, the longest text first: passes of stages have the number of their micro-batch. */
function spanTexts(row, index) {
  const label = labels[row.labels[index]];
  if (label.micro_batch === undefined) return [spanName(row, index)];
  const letter = passLetters[label.name] || "";
  const texts = [`${label.name} ${label.micro_batch}`, `${letter}${label.micro_batch}`, `${label.micro_batch}`];
  return figures.pipeline && figures.pipeline.stages_per_rank > 1 ? [`${texts[0]} in stage ${label.stage}`, ...texts] : texts;
}

/** What is known of a span, as pairs of name and text. */
function describe(row, index) {
  const label = labels[row.labels[index]];
  const start = row.starts[index];
  const duration = row.ends[index] - start;
  const properties = [["category", categories[label.category]], ["duration", formatTime(duration)],
                 ["begin", runEnd >= 1000 ? `${(start / 1e3).toFixed(6)} s` : `${start.toFixed(4)} ms`], ["rank", rankName(row.rank)]];
  const step = stepAt(row.rank, start + duration / 2);
  if (step) {
    properties.push(["step", `${step.step}`]);
    if (label.category !== isStep) properties.push(["of the step", formatShare(duration / (step.end - step.begin))]);
  }
  if (label.micro_batch !== undefined) properties.push(["stage", `${label.stage}`], ["micro-batch", `${label.micro_batch}`]);
  for (const key of ["operation", "bucket", "layer"]) {
    if (label[key] !== undefined && label[key] !== label.name) properties.push([key, label[key]]);
  }
  if (label.for !== undefined) properties.push(["waits for", label.for]);
  if (label.peer !== undefined) properties.push(["other rank", `${label.peer}`]);
  if (label.bytes !== undefined) properties.push(["bytes", formatBytes(label.bytes)]);
  const arrival = row.arrivals.get(index);
  if (arrival) {
    properties.push(["waited for", `rank ${arrival.rank}, ${formatTime(arrival.time - start)}`]);
    properties.push(["transferred for", formatTime(row.ends[index] - arrival.time)]);
  }
  if (label.bytes > 0 && duration > 0) {
    const time = row.ends[index] - (arrival ? arrival.time : start);
    if (time > 0) properties.push(["rate", `${formatBytes(label.bytes / time * 1e3)}/s`]);
  }
  return properties;
}
