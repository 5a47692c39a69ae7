
// SPDX-License-Identifier: BSL-1.0
//
// Drawing the timeline: positions of rows, spans (those narrower than a pixel together), arrows, axis and overview.
const gutter = 168;       // pixels for names, on the left
const axisHeight = 26;
const rowHeight = 17;
const rankGap = 12;
const mostArrows = 300;   // drawn at once; of more, only those of the span under the pointer or selected
const denseSpans = 8;     // spans a pixel, from which on a row is sampled
const sampled = 16;       // spans a pixel, then

/** Colours of the style sheet, read once for each of its two sets. */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {spans: categories.map((name) => of(name) || of("other")), text: of("text"), muted: of("muted"),
          line: of("line"), card: of("card"), page: of("page"), onSpan: of("on-span"), mark: of("mark"),
          accent: of("accent")};
}

/** Positions of rows: {entries: [{row, top, height}], ranks: [{rank, top, bottom}], height}. In "normal" mode tracks with
 * many rows have low ones; in "tall" mode all have room for names; "phases" leaves out all but the step's track. */
function layOut(mode, opened) {
  const depths = new Map();
  for (const row of rows) depths.set(`${row.rank} ${row.track}`, row.depth + 1);
  const folded = (row) => mode === "normal" && foldable.has(`${row.rank} ${row.track}`) && !opened.has(row.rank);
  const entries = [];
  const ranks = [];
  let top = axisHeight + 6;
  let rank = -1;
  const close = () => {  // a rank has room for its name and its host
    const last = ranks[ranks.length - 1];
    last.bottom = Math.max(top, last.top + 2 * rowHeight);
    return last.bottom;
  };
  for (const row of rows) {
    if (mode === "phases" && row.track !== 0) continue;
    if (row.rank !== rank) {
      if (rank >= 0) top = close() + rankGap;
      rank = row.rank;
      ranks.push({rank, top, bottom: top});
    }
    if (folded(row)) {  // over each other, in one row
      if (row.depth === 0) top += rowHeight;
      entries.push({row, top: top - rowHeight, height: rowHeight});
      continue;
    }
    const depth = depths.get(`${row.rank} ${row.track}`);
    const height = (mode === "normal" || mode === "messages") && depth > 4 ? Math.max(4, Math.floor(4 * rowHeight / depth)) : rowHeight;
    entries.push({row, top, height});
    top += height;
  }
  if (ranks.length) top = close();
  return {entries, ranks, folded, height: top + 10};
}

/** "rank track" of the tracks of messages that take several rows: of many ranks they would hide all else. */
const foldable = (() => {
  const deep = new Set();
  const talks = new Set();
  for (const row of rows) {
    if (row.track !== 2) continue;
    const track = `${row.rank} ${row.track}`;
    if (row.depth > 0) deep.add(track);
    if (!talks.has(track) && row.labels.some((label) => messageLabels.has(label))) talks.add(track);
  }
  return new Set([...deep].filter((track) => talks.has(track)));
})();

/** A step of 1, 2 or 5 times a power of ten, so that about `wanted` of them fit. */
function niceStep(range, wanted) {
  const rough = range / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || 10 * power;
}

/** A time on the axis, with the digits that neighbours differ in. */
function axisLabel(time, step) {
  const [unit, factor] = runEnd >= 1000 && step >= 0.5 ? ["s", 1e3] : runEnd >= 1 && step >= 5e-4 ? ["ms", 1] : ["µs", 1e-3];
  const digits = Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9));
  return `${(time / factor).toFixed(Math.min(digits, 6))} ${unit}`;
}

/** The ticks from `begin` to `end`: at most 2000. */
function ticks(begin, end, width) {
  const step = niceStep(end - begin, Math.max(2, width / 110));
  const list = [];
  for (let i = Math.ceil(begin / step); i * step <= end && list.length < 2000; ++i) list.push(i * step);
  return {step, list};
}

/** Makes the canvas as sharp as the screen is. Returns the context, in CSS pixels. */
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const fontOf = (size, weight = "") => `${weight} ${size}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** A text that is cut so that it fits; empty if not even three letters do. */
function fitted(context, text, width) {
  if (width < 14) return "";
  const most = Math.floor(width / 5.2);
  let shown = text.length > most ? text.slice(0, most) : text;
  while (shown.length > 2 && context.measureText(shown).width > width) {
    shown = shown.slice(0, Math.max(2, Math.floor(shown.length * Math.min(0.95, width / context.measureText(shown).width))));
  }
  if (shown.length === text.length) return shown;
  return shown.length > 3 ? `${shown.slice(0, -1)}…` : "";
}

/** The first of some texts that is no wider than that; empty if none is. */
function longestThatFits(context, texts, width) {
  return texts.find((text) => text.length * 4 < width && context.measureText(text).width <= width) || "";
}

/** One row of spans, as laid out. `matches`: a list by label, 1 where the search finds it, or null. */
function drawRow(context, {row, height: rowSize}, top, view, width, palette, matches) {
  const {starts, ends} = row;
  const height = rowSize - (rowSize > 8 ? 2 : 1);
  const scale = width / (view.end - view.begin);
  const first = firstAbove(ends, view.begin);
  const last = firstAbove(starts, view.end);  // one after the last that is seen
  const dim = (label) => (matches && !matches[label] ? 0.16 : 1);
  const covered = new Float64Array(categories.length);
  let column = -1;
  let found = false;
  const flush = () => {
    if (column < 0) return;
    let most = 0;
    let sum = 0;
    for (let k = 0; k < covered.length; ++k) {
      sum += covered[k];
      if (covered[k] > covered[most]) most = k;
      if (k !== most && covered[k] === covered[most]) most = k;
    }
    context.globalAlpha = (0.35 + 0.65 * Math.min(1, sum)) * (matches && !found ? 0.16 : 1);
    context.fillStyle = palette.spans[most];
    context.fillRect(gutter + column, top, 1, height);
    covered.fill(0);
    column = -1;
    found = false;
  };
  const dense = (last - first) / width > denseSpans;
  context.font = fontOf(11);
  context.textBaseline = "middle";
  for (let i = first; i < last; ++i) {
    const x0 = (starts[i] - view.begin) * scale;
    const x1 = (ends[i] - view.begin) * scale;
    const label = row.labels[i];
    if (x1 - x0 < 1.5) {
      const at = Math.max(0, Math.min(width - 1, Math.floor(x0)));
      if (at !== column) {
        flush();
        column = at;
      }
      covered[categoryOf[label]] += Math.max(x1 - x0, 0.02);
      found = found || Boolean(matches && matches[label]);
      if (dense) {
        // Enough of this pixel has been seen: go on where the next sample is.
        const next = firstAbove(starts, view.begin + (at + 1) / scale);
        i += Math.max(0, Math.floor((next - i) / sampled) - 1);
      }
      continue;
    }
    flush();
    const left = Math.max(0, x0);
    const right = Math.min(width, x1);
    const wide = Math.max(0.7, right - left - (right - left > 3 ? 0.6 : 0));
    const alpha = dim(label);
    context.globalAlpha = alpha;
    context.fillStyle = palette.spans[categoryOf[label]];
    context.fillRect(gutter + left, top, wide, height);
    const arrival = row.arrivals.get(i);
    if (arrival) {  // the part before all had arrived is pale
      const until = Math.min(right, (arrival.time - view.begin) * scale);
      if (until - left > 0.5) {
        context.globalAlpha = 0.62 * alpha;
        context.fillStyle = palette.card;
        const border = height > 8 ? 1.5 : 1;
        context.fillRect(gutter + left, top + border, until - left, height - 2 * border);
      }
    }
    const isPass = labels[label].micro_batch !== undefined;
    if (wide > (isPass ? 8 : 22) && height > 12) {
      const text = isPass ? longestThatFits(context, spanTexts(row, i), wide - 3) : fitted(context, spanName(row, i), wide - 8);
      if (text) {
        context.globalAlpha = Math.min(1, alpha * 2);
        context.fillStyle = arrival && (arrival.time - row.starts[i]) * scale > 30 ? palette.text : palette.onSpan;
        if (categoryOf[label] === isStep) context.fillStyle = palette.text;
        const inset = isPass ? Math.min(4, (wide - context.measureText(text).width) / 2) : 4;
        context.fillText(text, gutter + left + inset, top + height / 2 + 0.5);
      }
    }
  }
  flush();
  context.globalAlpha = 1;
}

/** A frame around a span. */
function outline(context, span, {top, height}, view, width, colourOfIt) {
  const scale = width / (view.end - view.begin);
  const x0 = Math.max(-2, (span.row.starts[span.index] - view.begin) * scale);
  const x1 = Math.min(width + 2, (span.row.ends[span.index] - view.begin) * scale);
  if (x1 < 0 || x0 > width) return;
  context.strokeStyle = colourOfIt;
  context.lineWidth = 2;
  context.strokeRect(gutter + x0 - 0.5, top - 0.5, Math.max(2, x1 - x0), height - 1);
}

/** Arrows from sends to receives. `touches(row, time)`: an end of the span that is looked at. */
function drawArrows(context, placeOf, view, width, height, palette, all, touches) {
  const scale = width / (view.end - view.begin);
  const {flows} = timeline;
  const chosen = [];
  for (let i = 0; i < flows.length; i += 4) {
    const begin = flows[i + 1] / 1e4;
    const end = flows[i + 3] / 1e4;
    if (Math.max(begin, end) < view.begin || Math.min(begin, end) > view.end) continue;
    const special = touches(rows[flows[i]], begin) || touches(rows[flows[i + 2]], end);
    if (all || special) chosen.push([i, special]);
  }
  const crowded = chosen.length > mostArrows;
  let drawn = 0;
  for (const [i, special] of chosen) {
    const from = placeOf.get(rows[flows[i]]);
    const to = placeOf.get(rows[flows[i + 2]]);
    if ((crowded && !special) || from === undefined || to === undefined) continue;
    const y0 = from.top + from.height / 2;
    const y1 = to.top + to.height / 2;
    if (Math.max(y0, y1) < 0 || Math.min(y0, y1) > height) continue;
    const x0 = gutter + (flows[i + 1] / 1e4 - view.begin) * scale;
    const x1 = gutter + (flows[i + 3] / 1e4 - view.begin) * scale;
    const bend = Math.max(14, Math.min(60, Math.abs(x1 - x0) / 2));
    context.globalAlpha = special ? 1 : 0.55;
    context.strokeStyle = special ? palette.mark : palette.muted;
    context.fillStyle = context.strokeStyle;
    context.lineWidth = special ? 1.8 : 1;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 3.5);
    context.lineTo(x1 - 7, y1 + 3.5);
    context.fill();
    ++drawn;
  }
  context.globalAlpha = 1;
  return {drawn, hidden: chosen.length - drawn};
}

/** Names of ranks and tracks, on the left. */
function drawNames(context, placed, scroll, height, palette) {
  context.fillStyle = palette.card;
  context.fillRect(0, 0, gutter, height);
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(gutter - 0.5, 0);
  context.lineTo(gutter - 0.5, height);
  context.stroke();
  context.textBaseline = "middle";
  for (const {row, top} of placed.entries) {
    const y = top - scroll;
    if (row.depth > 0 || y < -rowHeight || y > height) continue;
    const track = namedTracks.get(`${row.rank} ${row.track}`) || trackNames[row.track] || `track ${row.track}`;
    const name = !foldable.has(`${row.rank} ${row.track}`) ? track : placed.folded(row) ? `▸ ${track}` : `▾ ${track}`;
    context.font = fontOf(11);
    context.fillStyle = palette.muted;
    context.textAlign = "right";
    context.fillText(fitted(context, name, 92), gutter - 8, y + rowHeight / 2);
  }
  context.textAlign = "left";
  for (const {rank, top, bottom} of placed.ranks) {
    // The name stays in sight as long as some row of the rank is.
    const y = Math.min(Math.max(top - scroll, axisHeight + 4), bottom - scroll - 2 * rowHeight);
    if (bottom - scroll < axisHeight || top - scroll > height) continue;
    context.font = fontOf(12.5, "600");
    context.fillStyle = palette.text;
    context.fillText(`rank ${rank}`, 10, y + rowHeight / 2);
    const host = figures.by_rank[rank].host;
    if (host && bottom - top >= 2 * rowHeight) {
      context.font = fontOf(11);
      context.fillStyle = palette.muted;
      context.fillText(fitted(context, host, 76), 10, y + 1.5 * rowHeight);
    }
    if (top - scroll > axisHeight) {
      context.strokeStyle = palette.line;
      context.beginPath();
      context.moveTo(0, Math.round(top - scroll - rankGap / 2) + 0.5);
      context.lineTo(gutter, Math.round(top - scroll - rankGap / 2) + 0.5);
      context.stroke();
    }
  }
}

function drawGrid(context, view, width, height, palette) {
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.beginPath();
  for (const time of ticks(view.begin, view.end, width).list) {
    const x = gutter + Math.round((time - view.begin) * width / (view.end - view.begin)) + 0.5;
    context.moveTo(x, axisHeight);
    context.lineTo(x, height);
  }
  context.stroke();
}

function drawAxis(context, view, width, palette) {
  context.fillStyle = palette.page;
  context.fillRect(0, 0, gutter + width, axisHeight);
  context.font = fontOf(11.5);
  context.fillStyle = palette.muted;
  context.textBaseline = "middle";
  const {step, list} = ticks(view.begin, view.end, width);
  context.textAlign = "left";
  for (const time of list) {
    const x = gutter + (time - view.begin) * width / (view.end - view.begin);
    const label = axisLabel(time, step);
    if (x + 6 + context.measureText(label).width < gutter + width) context.fillText(label, x + 4, axisHeight / 2);
    context.fillRect(x, axisHeight - 6, 1, 6);
  }
  context.fillText("time", 10, axisHeight / 2);
}

/** The phases of all ranks over the whole run, as thin lines (of many ranks: some of them). */
function drawOverview(context, width, height, palette) {
  // What is inside steps, and beside them; of a rank without steps, all it has.
  const ranks = [...new Set(rows.map((row) => row.rank))];
  const most = Math.max(1, Math.floor((height - 8) / 3));
  const shown = ranks.filter((_, i) => i % Math.ceil(ranks.length / most) === 0).map((rank) => {
    const its = rows.filter((row) => row.rank === rank);
    const phases = its.filter((row) => row.track === 0);
    return phases.length ? phases : its;
  });
  const each = Math.min(8, (height - 8) / Math.max(1, shown.length));
  const scale = width / runEnd;
  context.fillStyle = palette.page;
  context.fillRect(0, 0, gutter + width, height);
  context.font = fontOf(11.5);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = palette.muted;
  context.fillText("whole run", 10, height / 2);
  shown.forEach((its, line) => {
    const top = 4 + line * each;
    // What covers most of each pixel; what lies inside another span counts instead of it.
    const best = new Int8Array(Math.ceil(width)).fill(-1);
    for (const row of its) {
      const covered = new Float64Array(best.length * categories.length);
      const stride = Math.max(1, Math.floor(row.starts.length / (width * 64)));
      for (let i = 0; i < row.starts.length; i += stride) {
        const category = categoryOf[row.labels[i]];
        const x0 = row.starts[i] * scale;
        const x1 = category === isStep ? 0 : Math.min(row.ends[i] * scale, width);
        for (let x = Math.floor(x0); x < x1 && x < width; ++x) {
          covered[x * categories.length + category] += Math.min(x1, x + 1) - Math.max(x0, x);
        }
      }
      for (let x = 0; x < best.length; ++x) {
        const parts = covered.subarray(x * categories.length, (x + 1) * categories.length);
        const sum = parts.reduce((all, part) => all + part, 0);
        if (sum > 0.5 || (sum > 0.02 && best[x] < 0)) best[x] = parts.indexOf(Math.max(...parts));
      }
    }
    best.forEach((category, x) => {
      if (category < 0) return;
      context.fillStyle = palette.spans[category];
      context.fillRect(gutter + x, top, 1, Math.max(1, each - 0.8));
    });
  });
}
