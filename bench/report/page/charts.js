
// SPDX-License-Identifier: BSL-1.0
//
// Pictures of figures: bars of activities, the distribution and the course of step times. Each has its numbers in a table.
const activities = ["forward", "backward", "exchange", "update", "communicate", "wait", "input", "copy", "evaluate", "log", "other", "idle"];
const activityTexts = {exchange: "work of the exchange", communicate: "standing in a transfer", other: "not recorded", idle: "between steps"};
const activityText = (name) => activityTexts[name] || name;

/** A bar of parts: [{name, value, colour, text}]; `whole` is its full length. */
function stackedBar(parts, whole) {
  return element("div", {class: "bar", "aria-hidden": "true"}, ...parts.filter((part) => part.value > 0).map((part) => {
    const share = whole > 0 ? part.value / whole : 0;
    return element("span", {style: {width: `${100 * share}%`, background: part.colour}, title: `${part.name}: ${part.text}`},
                   share > 0.055 ? formatShare(share) : "");
  }));
}

function legendOf(names) {
  return element("ul", {class: "legend"}, ...names.map((name) => element("li", {},
    element("span", {class: "swatch", style: {background: colour(name)}}), activityText(name))));
}

/** The rows of bars [{name, bar, text, far}]. Of many those with the largest `far`, and the others in their order on request. */
function manyBars(list, how, things = "ranks") {
  const most = 10;
  const bars = element("div", {class: "bars"});
  const show = (some) => bars.replaceChildren(...some.flatMap(({name, bar, text}) =>
    [element("span", {class: "name", title: name}, name), bar(), element("span", {}, text)]));
  if (list.length <= most) {
    show(list);
    return [bars];
  }
  const farthest = [...list].sort((a, b) => b.far - a.far).slice(0, most);
  const note = element("span", {});
  const button = element("button", {type: "button", class: "link", onclick: () => choose(button.dataset.all !== "yes")});
  const choose = (all) => {
    show(all ? list : farthest);
    note.textContent = all ? `All ${list.length} ${things}. ` : `The ${most} of ${list.length} ${things} ${how}. `;
    button.textContent = all ? `Show those ${most} alone` : `Show all ${list.length}`;
    button.dataset.all = all ? "yes" : "no";
  };
  choose(false);
  return [element("p", {class: "muted"}, note, button), bars];
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];

/** Bars and table of one breakdown, "breakdown_ms" (a step) or "run_ms". */
function breakdown(which) {
  const perStep = which === "breakdown_ms";
  const working = figures.by_rank.filter((rank) => rank.steps > 0);  // servers have no steps
  const ranks = perStep && working.length ? working : figures.by_rank;
  const seen = (rank, name) => rank[which][name] > 1e-5 * (perStep ? rank.step_ms : figures.run_ms);
  const used = activities.filter((name) => ranks.some((rank) => seen(rank, name)));
  const sums = ranks.map((rank) => used.reduce((sum, name) => sum + rank[which][name], 0));
  const longest = Math.max(...sums, 0);
  const typical = used.map((name) => median(ranks.map((rank) => rank[which][name])));
  const bars = manyBars(ranks.map((rank, i) => ({
    name: rankName(rank.rank), text: formatTime(sums[i]),
    far: used.reduce((sum, name, k) => sum + Math.abs(rank[which][name] - typical[k]), 0),
    bar: () => stackedBar(used.map((name) => ({name: activityText(name), value: rank[which][name], colour: colour(name),
                                               text: formatTime(rank[which][name])})), longest)
  })), "that differ most from the median of the ranks");
  const table = makeTable({
    caption: perStep ? "A mean step of each rank. Its transfers are counted beside: hidden behind compute, or exposed."
      : "The whole run of each rank. Its transfers are counted beside: hidden behind compute, or exposed.",
    columns: [{name: "rank", left: true}, ...used.map((name) => ({name: activityText(name)})), {name: "sum"},
              {name: "hidden"}, {name: "exposed"}],
    rows: ranks.map((rank, i) => {
      const per = perStep ? Math.max(1, rank.steps) : 1;
      return [rankName(rank.rank), ...used.map((name) => formatTime(rank[which][name])), formatTime(sums[i]),
              formatTime(rank.communicate_ms.hidden / per), formatTime(rank.communicate_ms.exposed / per)];
    })
  });
  const notes = [];
  if (ranks.length < figures.by_rank.length) notes.push(`${count(figures.by_rank.length - ranks.length, "rank")} without steps: see the whole run.`);
  return [legendOf(used), ...bars, ...notes.map((text) => element("p", {class: "muted"}, text)), table];
}

/** For each stage, what its rank's step consists of. */
function stageBars(stages, causes) {
  const parts = [["computes", "forward"], ...(causes.length ? causes.map(([name], i) => [name, ["wait", "input", "communicate"][i]])
    : [["bubble", "wait"]]), ["other work", "other"]];
  const values = (stage) => {
    const bubble = causes.length ? causes.map(([, key]) => stage.bubble[key]) : [stage.bubble.all];
    // Other stages of the same rank are a part of the other work.
    return [stage.computes, ...bubble, Math.max(0, 1 - stage.computes - stage.bubble.all)];
  };
  return element("div", {}, element("ul", {class: "legend"}, ...parts.map(([name, like]) => element("li", {},
    element("span", {class: "swatch", style: {background: colour(like)}}), name))),
    ...manyBars(stages.map((stage) => ({name: `stage ${stage.stage}`, text: `${formatShare(stage.bubble.all)} bubble`, far: stage.bubble.all,
      bar: () => stackedBar(values(stage).map((value, i) => ({name: parts[i][0], value, colour: colour(parts[i][1]),
                                                             text: formatShare(value)})), 1)})), "with the largest bubbles", "stages"));
}

/** How often steps took how long, and how long each took. */
function stepCharts(showExample) {
  const step = figures.step_ms;
  if (!step.count) return [element("p", {class: "muted"}, "The trace has no steps.")];
  return [histogram(step), element("h3", {}, "In the order of the run"), course(step, showExample),
          makeTable({caption: "Of all steps of all ranks", columns: [{name: "median"}, {name: "mean"}, {name: "5 %"},
                     {name: "95 %"}, {name: "shortest"}, {name: "longest"}, {name: "jitter"}, {name: "steps"}],
                     rows: [[step.median, step.mean, step.p5, step.p95, step.least, step.greatest, step.jitter]
                       .map(formatTime).concat([step.count])]})];
}

function histogram(step) {
  const [width, height, left, bottom] = [720, 210, 44, 26];
  const times = figures.steps.map((each) => each[3]);
  // A few steps may be many times as long: they are counted in the last column.
  const limit = Math.min(step.greatest, Math.max(step.p95 + 2 * (step.p95 - step.p5), step.median * 1.2));
  const low = step.least;
  const columns = Math.max(1, Math.min(40, Math.ceil(Math.sqrt(times.length)) * 2));
  const range = Math.max(limit - low, step.median * 1e-3, 1e-9);
  const counts = new Array(columns).fill(0);
  for (const time of times) ++counts[Math.min(columns - 1, Math.floor((time - low) / range * columns))];
  const most = Math.max(...counts);
  const x = (time) => left + (time - low) / range * (width - left - 10);
  const y = (number) => height - bottom - number / most * (height - bottom - 30);
  const wide = (width - left - 10) / columns;
  const clipped = step.greatest > limit;
  const picture = drawing("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `How often steps took how long: median ${formatTime(step.median)}, 95 % below ${formatTime(step.p95)}`});
  counts.forEach((number, i) => {
    if (!number) return;
    const last = clipped && i === columns - 1;
    picture.append(drawing("rect", {class: "column", x: left + i * wide + 0.5, y: y(number), width: Math.max(1, wide - 1),
      height: height - bottom - y(number)}, drawing("title", {},
      `${count(number, "step")}, ${formatTime(low + i * range / columns)} ${last ? "and more" : `to ${formatTime(low + (i + 1) * range / columns)}`}`)));
  });
  picture.append(drawing("line", {class: "axis", x1: left, x2: width - 10, y1: height - bottom, y2: height - bottom}));
  const tick = niceStep(range, 6);
  for (let i = Math.ceil(low / tick); i * tick <= low + range && i - low / tick < 30; ++i) {
    picture.append(drawing("text", {x: x(i * tick), y: height - 8, "text-anchor": "middle"}, axisText(i * tick, tick)));
  }
  picture.append(drawing("text", {x: left - 6, y: y(most) + 4, "text-anchor": "end"}, most));
  picture.append(drawing("text", {x: left - 6, y: height - bottom, "text-anchor": "end"}, 0));
  // Labels of guides that are close together get different heights.
  let before = -Infinity;
  let level = 0;
  for (const [name, time] of [["median", step.median], ["95 %", step.p95]]) {
    if (time > low + range) continue;
    level = x(time) - before < 62 ? level + 1 : 0;
    before = x(time);
    const turn = x(time) > width - 80;
    picture.append(drawing("line", {class: "guide", x1: x(time), x2: x(time), y1: 8 + 13 * level, y2: height - bottom}),
                   drawing("text", {class: "guide-text", x: x(time) + (turn ? -4 : 4), y: 16 + 13 * level,
                                    "text-anchor": turn ? "end" : "start"}, name));
  }
  return picture;
}

const axisText = (time, step) => {
  const [unit, factor] = time >= 1000 ? ["s", 1e3] : time >= 1 ? ["ms", 1] : ["µs", 1e-3];
  return `${(time / factor).toFixed(Math.min(6, Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9))))} ${unit}`;
};

/** The longest rank of each step, in order; a click shows the step in the timeline. */
function course(step, showExample) {
  const [width, height, left, bottom] = [720, 170, 64, 22];
  const steps = new Map();
  for (const [rank, number, begin, time] of figures.steps) {
    const known = steps.get(number);
    if (!known || time > known.time) steps.set(number, {number, rank, begin, time});
  }
  let points = [...steps.values()].sort((a, b) => a.begin - b.begin);
  const all = points.length;
  if (all > 1500) {  // of each group the longest
    const group = Math.ceil(all / 1500);
    points = Array.from({length: Math.ceil(all / group)}, (_, i) =>
      points.slice(i * group, (i + 1) * group).reduce((a, b) => (b.time > a.time ? b : a)));
  }
  const sorted = points.map((point) => point.time).sort((a, b) => a - b);
  const typical = sorted[Math.floor((sorted.length - 1) * 0.98)];
  const top = Math.max(Math.min(sorted[sorted.length - 1], typical * 1.6), step.median * 1.1);
  const x = (i) => left + (i + 0.5) / points.length * (width - left - 10);
  const y = (time) => height - bottom - Math.min(1, time / top) * (height - bottom - 14);
  const picture = drawing("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `The longest rank of each of ${all} steps, in order; at most ${formatTime(sorted[sorted.length - 1])}`});
  const tick = niceStep(top, 4);
  for (let i = 0; i * tick <= top; ++i) {
    picture.append(drawing("line", {class: "axis", x1: left, x2: width - 10, y1: y(i * tick), y2: y(i * tick)}),
                   drawing("text", {x: left - 8, y: y(i * tick) + 4, "text-anchor": "end"}, i ? axisText(i * tick, tick) : "0"));
  }
  points.forEach((point, i) => {
    const above = point.time > top;
    const text = `step ${point.number}: ${formatTime(point.time)} on rank ${point.rank}`;
    const mark = above ? drawing("path", {class: "outlier", d: `M${x(i)} 2 l5 9 h-10 z`})
      : drawing("circle", {class: "point", cx: x(i), cy: y(point.time), r: points.length > 400 ? 1.6 : 2.8});
    mark.append(drawing("title", {}, above ? `${text}, above the picture` : text));
    mark.addEventListener("click", () => showExample(point.rank, point.begin, point.begin + point.time));
    picture.append(mark);
  });
  picture.append(drawing("text", {x: left, y: height - 5}, `step ${points[0].number}`),
                 drawing("text", {x: width - 10, y: height - 5, "text-anchor": "end"}, `step ${points[points.length - 1].number}`));
  return picture;
}

/** How much of the communication of each rank runs behind compute. */
function overlapChart() {
  const working = figures.by_rank.some((rank) => rank.steps > 0);
  const ranks = figures.by_rank.filter((rank) => rank.communicate_ms.total > 0 && (rank.steps > 0 || !working));
  if (!ranks.length) return [element("p", {class: "muted"}, "The trace has no transfers.")];
  const longest = Math.max(...ranks.map((rank) => rank.communicate_ms.total / Math.max(1, rank.steps)));
  const typical = median(ranks.map((rank) => rank.communicate_ms.exposed / Math.max(1, rank.steps)));
  return [element("p", {}, `${formatShare(figures.overlap)} of the time of transfers is hidden behind compute.`),
    element("ul", {class: "legend"}, ...[["hidden", "forward"], ["exposed", "wait"]].map(([name, like]) => element("li", {},
      element("span", {class: "swatch", style: {background: colour(like)}}), name))),
    ...manyBars(ranks.map((rank) => {
      const {hidden, exposed, total} = rank.communicate_ms;
      const per = Math.max(1, rank.steps);
      return {name: rankName(rank.rank), text: formatTime(total / per), far: Math.abs(exposed / per - typical),
              bar: () => stackedBar([{name: "hidden", value: hidden / per, colour: colour("forward"), text: formatTime(hidden / per)},
                {name: "exposed", value: exposed / per, colour: colour("wait"), text: formatTime(exposed / per)}], longest)};
    }), "whose exposed part differs most from the median"),
    makeTable({caption: working ? "A mean step" : "The whole run", columns: [{name: "rank", left: true}, {name: "transfers"}, {name: "hidden"},
               {name: "exposed"}, {name: "hidden part"}],
               rows: ranks.map((rank) => {
                 const per = Math.max(1, rank.steps);
                 return [rankName(rank.rank), formatTime(rank.communicate_ms.total / per), formatTime(rank.communicate_ms.hidden / per),
                         formatTime(rank.communicate_ms.exposed / per), formatShare(rank.overlap)];
               })})];
}
