
// SPDX-License-Identifier: BSL-1.0
//
// The parts of the report that are words and tables.

/** A table that shows the first rows and the others on request. A cell {meter: 0..1} is a bar. */
function makeTable({caption, columns, rows: lines, most = 12}) {
  const cell = (value, column, first) => {
    if (value !== null && typeof value === "object") {
      return element("td", {class: "metered"}, element("span", {class: "meter", style: {width: `${100 * value.meter}%`}}));
    }
    const attributes = column.left ? {class: "left", title: `${value}`} : {};
    return first ? element("th", {scope: "row", ...attributes}, value) : element("td", attributes, value);
  };
  const body = element("tbody");
  const add = (from, to) => body.append(...lines.slice(from, to).map((line) =>
    element("tr", {}, ...line.map((value, i) => cell(value, columns[i], i === 0 && columns[0].left)))));
  add(0, most);
  const table = element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...columns.map((column) =>
      element("th", {scope: "col", class: column.left ? "left" : undefined}, column.name)))), body);
  const around = element("div", {class: "table", tabindex: "0", role: "region", "aria-label": caption}, table);
  if (lines.length <= most) return around;
  const more = element("button", {type: "button", class: "link", onclick: () => {
    add(most, lines.length);
    more.remove();
  }}, `Show all ${lines.length}`);
  return element("div", {}, around, more);
}

const nothing = (text) => [element("p", {class: "muted"}, text)];

function verdictItem(verdict, showExample) {
  const parts = [element("p", {class: "sentence"}, `${verdict.sentence}.`)];
  if (verdict.figures.length) {
    parts.push(element("dl", {}, ...verdict.figures.map((figure) => element("div", {},
      element("dt", {}, figure.name), element("dd", {}, formatFigure(figure.value, figure.unit))))));
  }
  const advice = element("p", {class: "muted"}, verdict.advice ? `${verdict.advice} ` : "");
  if (verdict.example) {
    const {rank, begin_ms: begin, end_ms: end} = verdict.example;
    advice.append(element("button", {type: "button", class: "link", onclick: () => showExample(rank, begin, end)},
                          "Show in the timeline"));
  }
  parts.push(advice);
  return element("li", {class: verdict.share < 0.05 ? "minor" : ""}, ...parts);
}

function waitingTables() {
  if (figures.ranks < 2) return nothing("There is one rank, so no rank waits.");
  const result = [];
  const list = figures.waiting.filter((each) => each.share >= 0.001);
  if (list.length) {
    const most = list[0].share;
    result.push(makeTable({caption: "The others stand still, because this rank is last, because of what took it longer",
      columns: [{name: "last", left: true}, {name: "because of", left: true}, {name: "of the others' step"}, {name: ""}],
      rows: list.map((each) => [`rank ${each.rank}`, activityText(each.cause), formatShare(each.share), {meter: each.share / most}])}));
  }
  const staged = figures.pipeline ? [1] : [];  // one column more
  // Of many ranks those come first that cost most.
  const ranks = figures.by_rank.length > 12 ? [...figures.by_rank].sort((a, b) => b.makes_wait_ms - a.makes_wait_ms) : figures.by_rank;
  result.push(makeTable({caption: "A mean step of each rank: what it waits for, how long it lets others wait, and how often it was the last",
    columns: [{name: "rank", left: true}, {name: "for a rank"}, {name: "for data"}, ...staged.map(() => ({name: "for stages"})),
              {name: "lets others wait"}, {name: "was last"}],
    rows: ranks.map((rank) => [rankName(rank.rank), formatTime(rank.waits_for_rank_ms), formatTime(rank.waits_for_data_ms),
                               ...staged.map(() => formatTime(rank.waits_for_stages_ms)), formatTime(rank.makes_wait_ms), `${rank.was_last}×`])}));
  return result;
}

/** What stages do and wait for: only of a training in stages. */
function stageTables() {
  const {stages, schedule, predictions, cuts, ...all} = figures.pipeline;
  const explained = stages[0].bubble.filling !== undefined;
  const ranksOf = (stage) => stage.ranks.join(", ");
  const layersOf = ({layers, first_layer: first, last_layer: last}) =>
    (layers === 0 ? "not recorded" : layers === 1 ? first : `${first} … ${last} (${layers})`);
  const causes = explained ? [["filling and draining", "filling"], ["unequal stages", "unequal"], ["transfers and the rest", "rest"]] : [];
  const backward = all.splits_backward ? [["gradients of inputs", "input_gradients_ms"], ["gradients of weights", "weight_gradients_ms"]]
    : [["backward", "backward_ms"]];
  const properties = [`${count(stages.length, "stage")} on ${count(all.ranks_of_replica, "rank")}`, count(all.replicas, "replica"),
                 `${count(all.micro_batches, "micro-batch").replace(/hs$/, "hes")} a step`];
  if (explained) properties.push(schedule === "recorded" ? "a schedule of its own" : `schedule ${schedule}`);
  const result = [element("p", {}, `${properties.join(" · ")}.`), stageBars(stages, causes)];
  result.push(makeTable({caption: "Times of one pass over one micro-batch, and parts of the step of the rank. Bubble: it waits for messages of other stages",
    columns: [{name: "stage", left: true}, {name: all.replicas > 1 ? "ranks" : "rank", left: true}, {name: "layers", left: true},
              {name: "forward"}, ...backward.map(([name]) => ({name})), {name: "computes"}, {name: "bubble"}, ...causes.map(([name]) => ({name}))],
    rows: stages.map((stage) => [`${stage.stage}`, ranksOf(stage), layersOf(stage), formatTime(stage.forward_ms),
      ...backward.map(([, key]) => formatTime(stage[key])), formatShare(stage.computes), formatShare(stage.bubble.all),
      ...causes.map(([, key]) => formatShare(stage.bubble[key]))])}));
  if (predictions.length) {
    result.push(element("p", {class: "muted"}, "Predicted for the largest bubble: " + predictions.map((each) =>
      `${formatShare(each.bubble)} with ${each.micro_batches} micro-batches`).join(", ") + "."));
  }
  if (cuts.length) {
    const between = all.stages_per_rank === 1 ? "stages" : "ranks of a replica";
    result.push(makeTable({caption: "What crosses cuts in a step of one replica, both ways; a message is under way from its send on",
      columns: [{name: between, left: true}, {name: "messages"}, {name: "bytes"}, {name: "under way"}, {name: "rate"}],
      rows: cuts.map((cut) => [`${cut.between[0]} ↔ ${cut.between[1]}`, formatNumber(cut.messages), formatBytes(Math.round(cut.bytes)),
        formatTime(cut.under_way_ms), cut.under_way_ms > 0 ? `${formatBytes(Math.round(cut.bytes / cut.under_way_ms * 1e3))}/s` : ""])}));
  }
  return result;
}

function serverTables() {
  const ranks = figures.by_rank.map((rank) => ({name: rankName(rank.rank), sent: rank.sent_bytes, received: rank.received_bytes,
                                                collective: rank.collective_bytes}));
  const total = (rank) => rank.sent + rank.received + rank.collective;
  ranks.sort((a, b) => total(b) - total(a));
  const most = Math.max(...ranks.map(total), 0);
  if (!most) return nothing("The trace does not tell of bytes.");
  const used = [["sent", "sent"], ["received", "received"], ["in collectives", "collective"]]
    .filter(([, key]) => ranks.some((rank) => rank[key] > 0));
  const result = [makeTable({caption: "Bytes by rank, over the run",
    columns: [{name: "rank", left: true}, ...used.map(([name]) => ({name})), {name: ""}],
    rows: ranks.map((rank) => [rank.name, ...used.map(([, key]) => formatBytes(rank[key])), {meter: total(rank) / most}]), most: 8})];
  if (figures.links.length) {
    const widest = figures.links[0].bytes;
    result.push(makeTable({caption: "Links, by bytes", most: 10,
      columns: [{name: "from → to", left: true}, {name: "messages"}, {name: "bytes"}, {name: "busy"}, {name: "rate"}, {name: ""}],
      rows: figures.links.map((link) => [`rank ${link.from} → rank ${link.to}`, link.messages, formatBytes(link.bytes),
        formatTime(link.busy_ms), link.busy_ms > 0 ? `${formatBytes(link.bytes / link.busy_ms * 1e3)}/s` : "",
        {meter: widest > 0 ? link.bytes / widest : 0}])}));
  }
  return result;
}

function transferTable() {
  if (!figures.transfers.length) return nothing("The trace has no transfers.");
  const time = (each) => (each.waiting_ms || 0) + each.transferring_ms;
  const most = time(figures.transfers[0]);
  return [makeTable({caption: "Mean of one transfer on one rank; the rate is that of the buffer, without the waiting",
    columns: [{name: "transfer", left: true}, {name: "count"}, {name: "bytes"}, {name: "waiting"}, {name: "transferring"},
              {name: "rate"}, {name: "of all time"}],
    rows: figures.transfers.map((each) => [each.name, each.count, formatBytes(Math.round(each.bytes / each.count)),
      each.waiting_ms === null ? "not told" : formatTime(each.waiting_ms / each.count), formatTime(each.transferring_ms / each.count),
      each.bytes > 0 && each.transferring_ms > 0 ? `${formatBytes(each.bytes / each.transferring_ms * 1e3)}/s` : "",
      {meter: most > 0 ? time(each) / most : 0}])})];
}

function layerTable() {
  if (!figures.layers.length) return nothing("The trace has no layers.");
  const time = (each) => each.forward_ms + each.backward_ms + each.update_ms;
  const all = figures.layers.reduce((sum, each) => sum + time(each), 0);
  const most = time(figures.layers[0]);
  return [makeTable({caption: "A mean step of a mean rank, the longest first",
    columns: [{name: "layer", left: true}, {name: "forward"}, {name: "backward"}, {name: "update"}, {name: "of all layers"}, {name: ""}],
    rows: figures.layers.map((each) => [each.name, formatTime(each.forward_ms), formatTime(each.backward_ms), formatTime(each.update_ms),
      formatShare(all > 0 ? time(each) / all : 0), {meter: most > 0 ? time(each) / most : 0}])})];
}
