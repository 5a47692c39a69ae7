
// SPDX-License-Identifier: BSL-1.0
//
// The timeline as something to work with: view, wheel, drag, keys, search, tooltip, selection.
const shortest = 5e-4;  // milliseconds that the view shows at least

function makeTimeline() {
  const canvas = byId("spans");
  const overview = byId("overview");
  const scroller = byId("scroller");
  const tooltip = byId("tooltip");
  const frame = byId("timeline");
  let palette = readPalette();
  const opened = new Set();  // ranks whose messages have rows of their own
  let mode = "normal";
  let placed = layOut(mode, opened);
  let placeOfRow = new Map();
  const view = {begin: 0, end: runEnd};
  let size = {width: 0, height: 0, span: 0};
  let hovered = null;    // {row, index}
  let selected = null;
  let matches = null;    // by label: 1 where the search finds it
  let matchRanks = null; // by rank, where the search names one
  let marking = null;    // {from, to}, milliseconds: what a drag marks
  let overviewPicture = null;
  let scheduled = false;

  function place() {
    placed = layOut(mode, opened);
    placeOfRow = new Map(placed.entries.map((entry) => [entry.row, entry]));
    byId("height").style.height = `${Math.max(0, placed.height - size.height)}px`;
  }

  /** Reads sizes; the canvas is as large as what is seen and stays in place while the area behind it scrolls. */
  function measure() {
    size = {width: scroller.clientWidth, height: scroller.clientHeight, span: Math.max(50, scroller.clientWidth - gutter)};
    canvas.style.height = `${size.height}px`;
    byId("height").style.height = `${Math.max(0, placed.height - size.height)}px`;
    overviewPicture = null;
    schedule();
  }

  function schedule() {
    if (!scheduled) {
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        draw();
      });
    }
  }

  const matchesOf = (row) => (matches && (!matchRanks || matchRanks.has(row.rank)) ? matches : matches ? none : null);
  const none = new Uint8Array(labels.length);

  function draw() {
    if (!size.width || !size.height || !overview.clientHeight) return;  // not laid out yet
    const context = prepare(canvas, size.width, size.height);
    const scroll = scroller.scrollTop;
    context.fillStyle = palette.card;
    context.fillRect(0, 0, size.width, size.height);
    drawGrid(context, view, size.span, size.height, palette);
    context.save();
    context.beginPath();
    context.rect(gutter, axisHeight, size.span, size.height - axisHeight);
    context.clip();
    for (const entry of placed.entries) {
      const y = entry.top - scroll;
      if (y > -rowHeight && y < size.height) drawRow(context, entry, y, view, size.span, palette, matchesOf(entry.row));
    }
    const shifted = new Map(placed.entries.map(({row, top, height}) => [row, {top: top - scroll, height}]));
    const touches = (row, time) => [hovered, selected].some((span) =>
      span && span.row === row && time >= row.starts[span.index] && time <= row.ends[span.index]);
    const arrows = drawArrows(context, shifted, view, size.span, size.height, palette, byId("arrows").checked, touches);
    for (const [span, colourOfIt] of [[selected, palette.mark], [hovered, palette.text]]) {
      if (span && shifted.has(span.row)) outline(context, span, shifted.get(span.row), view, size.span, colourOfIt);
    }
    drawArrival(context);
    context.restore();
    drawNames(context, placed, scroll, size.height, palette);
    drawAxis(context, view, size.span, palette);
    if (marking) drawMarking(context, size.height);
    drawWindow();
    byId("view").textContent =
      `In view: ${formatTime(view.end - view.begin)} from ${axisLabel(view.begin, niceStep(view.end - view.begin, 20))} on, ` +
      `of ${formatTime(runEnd)}.` +
      (arrows.hidden > 0 && byId("arrows").checked ? ` ${count(arrows.hidden, "arrow")} not drawn: zoom in to see them.` : "") +
      (timeline.hidden > 0 ? ` ${count(timeline.hidden, "span")} overlap too many others and are not shown.` : "");
  }

  /** When the last rank arrived at the selected transfer, over all ranks. */
  function drawArrival(context) {
    const span = selected || hovered;
    const arrival = span && span.row.arrivals.get(span.index);
    if (!arrival) return;
    const x = gutter + (arrival.time - view.begin) * size.span / (view.end - view.begin);
    context.strokeStyle = palette.mark;
    context.fillStyle = palette.mark;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x, axisHeight);
    context.lineTo(x, size.height);
    context.stroke();
    context.setLineDash([]);
    context.font = fontOf(12, "600");
    const text = `rank ${arrival.rank} arrives last`;
    const wide = context.measureText(text).width;
    const left = x + wide + 8 > gutter + size.span ? x - wide - 6 : x + 5;
    context.fillStyle = palette.card;
    context.fillRect(left - 2, axisHeight + 2, wide + 4, 16);
    context.fillStyle = palette.mark;
    context.fillText(text, left, axisHeight + 10);
  }

  function drawMarking(context, height) {
    const scale = size.span / (view.end - view.begin);
    const x0 = gutter + (Math.min(marking.from, marking.to) - view.begin) * scale;
    const x1 = gutter + (Math.max(marking.from, marking.to) - view.begin) * scale;
    context.globalAlpha = 0.18;
    context.fillStyle = palette.accent;
    context.fillRect(x0, 0, x1 - x0, height);
    context.globalAlpha = 1;
    context.font = fontOf(12, "600");
    context.fillText(formatTime(Math.abs(marking.to - marking.from)), x0 + 4, axisHeight / 2);
  }

  /** The overview, and in it what the timeline shows. */
  function drawWindow() {
    const height = overview.clientHeight;
    if (!overviewPicture) {
      overviewPicture = document.createElement("canvas");
      drawOverview(prepare(overviewPicture, size.width, height), size.span, height, palette);
    }
    const context = prepare(overview, size.width, height);
    context.drawImage(overviewPicture, 0, 0, size.width, height);
    const x0 = gutter + view.begin / runEnd * size.span;
    const x1 = Math.max(x0 + 2, gutter + view.end / runEnd * size.span);
    context.globalAlpha = 0.6;
    context.fillStyle = palette.page;
    context.fillRect(gutter, 0, x0 - gutter, height);
    context.fillRect(x1, 0, gutter + size.span - x1, height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.accent;
    context.lineWidth = 2;
    context.strokeRect(x0, 1, x1 - x0, height - 2);
  }

  /** Shows from `begin` to `end`, within the run and no shorter than can be told apart. */
  function show(begin, end) {
    const wide = Math.min(runEnd, Math.max(shortest, end - begin));
    const middle = (begin + end) / 2;
    view.begin = Math.min(Math.max(0, middle - wide / 2), runEnd - wide);
    view.end = view.begin + wide;
    schedule();
  }
  /** Zooms by a factor and keeps the time at that place (0 left, 1 right) where it is. */
  function zoom(factor, at = 0.5) {
    const wide = Math.min(runEnd, Math.max(shortest, (view.end - view.begin) * factor));
    const fixed = view.begin + at * (view.end - view.begin);
    view.begin = Math.min(Math.max(0, fixed - at * wide), runEnd - wide);
    view.end = view.begin + wide;
    schedule();
  }
  function pan(part) {
    const wide = view.end - view.begin;
    view.begin = Math.min(Math.max(0, view.begin + part * wide), runEnd - wide);
    view.end = view.begin + wide;
    schedule();
  }
  /** Scrolls to a row unless it is in sight. */
  function reveal(row) {
    if (!placeOfRow.has(row)) return;
    const {top} = placeOfRow.get(row);
    if (top - scroller.scrollTop < axisHeight || top - scroller.scrollTop > size.height - 2 * rowHeight) {
      scroller.scrollTop = top - size.height / 3;
    }
  }
  function revealRank(rank) {
    const found = placed.ranks.find((each) => each.rank === rank);
    if (found) scroller.scrollTop = found.top - axisHeight - 8;
  }

  const timeAt = (x) => view.begin + (x - gutter) / size.span * (view.end - view.begin);

  /** The span at a point of the canvas; narrow ones within two pixels. */
  function spanAt(x, y) {
    if (x < gutter || y < axisHeight) return null;
    const inside = y + scroller.scrollTop;
    const time = timeAt(x);
    const near = 2 / size.span * (view.end - view.begin);
    let best = null;
    for (const {row, top, height} of placed.entries) {  // several where messages are folded
      if (inside < top || inside >= top + height) continue;
      const after = firstAbove(row.ends, time);
      for (const index of [after - 1, after, after + 1]) {
        if (index < 0 || index >= row.starts.length) continue;
        const away = Math.max(0, row.starts[index] - time, time - row.ends[index]);
        if (away <= near && (!best || away < best.away)) best = {row, index, away};
      }
    }
    return best;
  }

  /** In the column of names: the messages of a rank are folded or get rows of their own. */
  function toggleMessages(x, y) {
    const inside = y + scroller.scrollTop;
    const entry = x < gutter && y >= axisHeight && mode === "normal" && placed.entries.find(({row, top, height}) =>
      inside >= top && inside < top + height && foldable.has(`${row.rank} ${row.track}`));
    if (!entry) return false;
    const {rank} = entry.row;
    if (!opened.delete(rank)) opened.add(rank);
    place();
    schedule();
    return true;
  }

  function showTooltip(span, x, y) {
    if (!span) {
      tooltip.hidden = true;
      return;
    }
    const properties = describe(span.row, span.index).filter(([name]) => name !== "begin");
    tooltip.replaceChildren(element("strong", {}, spanName(span.row, span.index)),
                            ...properties.map(([name, text]) => element("div", {}, `${name}: ${text}`)));
    tooltip.hidden = false;
    const box = frame.getBoundingClientRect();
    const [wide, high] = [tooltip.offsetWidth, tooltip.offsetHeight];
    tooltip.style.left = `${Math.max(4, x + 16 + wide > box.width ? x - wide - 12 : x + 16)}px`;
    tooltip.style.top = `${Math.max(4, Math.min(y + 14, box.height - high - 6))}px`;
  }

  function select(span) {
    selected = span;
    const panel = byId("selected");
    if (!span) {
      panel.replaceChildren(element("div", {class: "hint"}, "No span is selected: click one, or use the keys for comma and full stop."));
    } else {
      const properties = [["name", spanName(span.row, span.index)], ...describe(span.row, span.index)];
      panel.replaceChildren(...properties.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
    }
    schedule();
  }
  /** Selects a span and makes sure that it is seen. */
  function goTo(span, zoomToIt = false) {
    const [begin, end] = [span.row.starts[span.index], span.row.ends[span.index]];
    const wide = view.end - view.begin;
    const tiny = (end - begin) < wide / 400;
    if (zoomToIt || tiny || end - begin > wide) show(begin - (end - begin), end + (end - begin));
    else if (begin < view.begin || end > view.end) show((begin + end - wide) / 2, (begin + end + wide) / 2);
    reveal(span.row);
    select(span);
  }
  function selectNeighbour(by) {
    if (!selected) {
      const entry = placed.entries.find(({row, top}) => top >= scroller.scrollTop + axisHeight && row.depth > 0) || placed.entries[0];
      if (entry) goTo({row: entry.row, index: Math.min(entry.row.starts.length - 1, firstAbove(entry.row.ends, view.begin))});
      return;
    }
    const index = selected.index + by;
    if (index >= 0 && index < selected.row.starts.length) goTo({row: selected.row, index});
  }

  /** The step before or after what is in view (of rank 0 or the first that has steps), or one of median length. */
  function showStep(by) {
    const steps = stepsOfRank.find((list) => list.length) || [];
    if (!steps.length) return;
    let chosen;
    if (by === 0) {
      const sorted = [...steps].sort((a, b) => (a.end - a.begin) - (b.end - b.begin));
      chosen = sorted[sorted.length >> 1];
    } else {
      const middle = (view.begin + view.end) / 2;
      const now = steps.findIndex((step) => step.end > middle);
      const from = now < 0 ? steps.length : now;
      chosen = steps[Math.min(steps.length - 1, Math.max(0, from + by))];
    }
    const margin = 0.03 * (chosen.end - chosen.begin);
    show(chosen.begin - margin, chosen.end + margin);
  }

  /** Finds spans by the words of their names; "rank 3" chooses a rank. */
  function search(text) {
    const ranks = [...text.matchAll(/\brank\s*(\d+)\b/gi)].map((found) => Number(found[1]));
    const words = text.replace(/\brank\s*\d+\b/gi, " ").toLowerCase().split(/\s+/).filter(Boolean);
    matchRanks = ranks.length ? new Set(ranks) : null;
    if (!words.length && !matchRanks) {
      matches = null;
      byId("found").textContent = "";
    } else {
      matches = Uint8Array.from(labels, (label) => {
        const all = [label.name, categories[label.category], label.operation, label.bucket, label.layer, label.for]
          .filter((each) => each !== undefined).join(" ").toLowerCase();
        return words.every((word) => all.includes(word)) ? 1 : 0;
      });
      let number = 0;
      let time = 0;
      for (const row of rows) {
        const found = matchesOf(row);
        for (let i = 0; i < row.labels.length; ++i) {
          if (found[row.labels[i]]) {
            ++number;
            time += row.ends[i] - row.starts[i];
          }
        }
      }
      byId("found").textContent = number ? `${count(number, "span")}, ${formatTime(time)} in all` : "nothing found";
    }
    for (const id of ["next-match", "previous-match"]) byId(id).disabled = !matches;
    schedule();
  }
  /** The next match in time (by: 1) or the one before (-1), from the selected span or the begin of the view on. */
  function nextMatch(by) {
    if (!matches) return;
    const at = selected ? selected.row.starts[selected.index] : view.begin;
    const order = selected ? rows.indexOf(selected.row) : by > 0 ? -1 : rows.length;
    let best = null;
    let wrapped = null;
    const before = (a, b) => by * (a.time - b.time) < 0 || (a.time === b.time && by * (a.order - b.order) < 0);
    rows.forEach((row, i) => {
      const found = matchesOf(row);
      if (!placeOfRow.has(row)) return;
      for (let index = 0; index < row.labels.length; ++index) {
        if (!found[row.labels[index]]) continue;
        const next = {row, index, order: i, time: row.starts[index]};
        const ahead = by * (next.time - at) > 0 || (next.time === at && by * (i - order) > 0);
        if (ahead && (!best || before(next, best))) best = next;
        if (!wrapped || before(next, wrapped)) wrapped = next;
      }
    });
    const chosen = best || wrapped;
    if (chosen) goTo(chosen);
  }

  // Mouse and touch
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = [event.deltaX * pixels, event.deltaY * pixels];
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      pan((event.shiftKey && dx === 0 ? dy : dx) / size.span);
    } else {
      zoom(Math.exp(Math.max(-300, Math.min(300, dy)) * 0.0022), Math.min(1, Math.max(0, (point(event).x - gutter) / size.span)));
    }
  }, {passive: false});
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const at = point(event);
    const marks = event.shiftKey || at.y < axisHeight;
    drag = {x: at.x, y: at.y, begin: view.begin, end: view.end, scroll: scroller.scrollTop, moved: false, marks};
    if (marks) marking = {from: timeAt(at.x), to: timeAt(at.x)};
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({preventScroll: true});
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = point(event);
    if (!drag) {
      const span = spanAt(at.x, at.y);
      if ((span && span.row) !== (hovered && hovered.row) || (span && span.index) !== (hovered && hovered.index)) {
        hovered = span;
        schedule();
      }
      canvas.classList.toggle("marking", event.shiftKey || at.y < axisHeight);
      showTooltip(span, at.x, at.y + canvas.getBoundingClientRect().top - frame.getBoundingClientRect().top);
      return;
    }
    if (Math.abs(at.x - drag.x) + Math.abs(at.y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    tooltip.hidden = true;
    if (drag.marks) {
      marking.to = Math.min(view.end, Math.max(view.begin, timeAt(at.x)));
      schedule();
    } else {
      canvas.classList.add("dragging");
      const shift = (drag.x - at.x) / size.span * (drag.end - drag.begin);
      show(drag.begin + shift, drag.end + shift);
      scroller.scrollTop = drag.scroll + drag.y - at.y;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = point(event);
    if (drag && !drag.moved && !toggleMessages(at.x, at.y)) select(spanAt(at.x, at.y));
    if (drag && drag.moved && marking) {
      const [from, to] = [Math.min(marking.from, marking.to), Math.max(marking.from, marking.to)];
      if (to > from) show(from, to);
    }
    endDrag();
  });
  const endDrag = () => {
    drag = null;
    marking = null;
    canvas.classList.remove("dragging");
    schedule();
  };
  canvas.addEventListener("pointercancel", endDrag);
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    tooltip.hidden = true;
    schedule();
  });
  canvas.addEventListener("dblclick", (event) => {
    const at = point(event);
    const span = spanAt(at.x, at.y);
    if (span) goTo(span, true);
  });
  scroller.addEventListener("scroll", schedule);

  const timeInOverview = (event) =>
    Math.min(1, Math.max(0, (event.clientX - overview.getBoundingClientRect().left - gutter) / size.span)) * runEnd;
  let from = null;
  overview.addEventListener("pointerdown", (event) => {
    from = timeInOverview(event);
    overview.setPointerCapture(event.pointerId);
  });
  overview.addEventListener("pointermove", (event) => {
    if (from !== null && Math.abs(timeInOverview(event) - from) > runEnd / 200) {
      show(Math.min(from, timeInOverview(event)), Math.max(from, timeInOverview(event)));
    }
  });
  overview.addEventListener("pointerup", (event) => {
    const to = timeInOverview(event);
    const wide = view.end - view.begin;
    if (from !== null && Math.abs(to - from) <= runEnd / 200) show(to - wide / 2, to + wide / 2);
    from = null;
  });

  // Keys
  const whole = () => show(0, runEnd);
  const keys = {
    ArrowLeft: (event) => pan(event.shiftKey ? -0.8 : -0.15),
    ArrowRight: (event) => pan(event.shiftKey ? 0.8 : 0.15),
    ArrowUp: (event) => scroller.scrollBy(0, event.shiftKey ? -size.height * 0.8 : -3 * rowHeight),
    ArrowDown: (event) => scroller.scrollBy(0, event.shiftKey ? size.height * 0.8 : 3 * rowHeight),
    PageUp: () => scroller.scrollBy(0, -size.height * 0.8),
    PageDown: () => scroller.scrollBy(0, size.height * 0.8),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    "0": whole,
    Home: whole,
    "[": () => showStep(-1),
    "]": () => showStep(1),
    s: () => showStep(0),
    ",": () => selectNeighbour(-1),
    ".": () => selectNeighbour(1),
    Enter: () => selected && goTo(selected, true),
    Escape: () => select(null),
    n: () => nextMatch(1),
    N: () => nextMatch(-1),
    "/": () => byId("search").focus()
  };
  canvas.addEventListener("keydown", (event) => {
    const action = !event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key];
    if (action) {
      event.preventDefault();
      action(event);
    }
  });

  // Controls
  byId("zoom-in").addEventListener("click", () => zoom(0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("whole-run").addEventListener("click", whole);
  byId("one-step").addEventListener("click", () => showStep(0));
  byId("one-step").disabled = !figures.steps.length;
  byId("next-match").addEventListener("click", () => nextMatch(1));
  byId("previous-match").addEventListener("click", () => nextMatch(-1));
  byId("arrows").addEventListener("change", schedule);
  if (!timeline.flows.length) byId("arrows").closest("label").hidden = true;
  byId("rows").addEventListener("change", (event) => {
    mode = event.target.value;
    place();
    schedule();
  });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") canvas.focus();
  });
  const used = new Set(rows.flatMap((row) => [...new Set(row.labels)].map((label) => categoryOf[label])));
  byId("legend").append(...[...used].sort((a, b) => a - b).map((category) => element("li", {},
    element("span", {class: "swatch", style: {background: colour(categories[category])}}), categories[category])));
  if (figures.pipeline) {
    const letters = figures.pipeline.splits_backward ? "I3 and W3: gradients of inputs and of weights" : "B3: backward";
    byId("legend").append(element("li", {}, `F3: forward of micro-batch 3, ${letters}`));
  }
  if (rows.some((row) => row.arrivals.size)) {
    byId("legend").append(element("li", {}, "pale part of a transfer: some rank had not arrived"));
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    palette = readPalette();
    overviewPicture = null;
    schedule();
  });
  // As high as all rows need, where that is less than the style gives.
  scroller.style.maxHeight = `${Math.max(160, layOut("tall").height + 4)}px`;
  new ResizeObserver(measure).observe(scroller);
  place();
  search("");
  select(null);
  measure();

  return {
    /** Shows a time of a rank, from outside of the timeline. */
    showExample(rank, begin, end) {
      const margin = 0.1 * (end - begin);
      show(begin - margin, end + margin);
      revealRank(rank);
      byId("timeline-title").scrollIntoView({block: "start"});
      canvas.focus({preventScroll: true});
    },
    state: () => ({begin: view.begin, end: view.end, scroll: scroller.scrollTop,
                   selected: selected ? spanName(selected.row, selected.index) : null,
                   rows: placed.entries.length, height: placed.height, searching: matches !== null}),
    /** Where the first row of a track begins. */
    topOf: (rank, track) => placed.entries.find(({row}) => row.rank === rank && row.track === track).top
  };
}
