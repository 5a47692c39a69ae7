
// SPDX-License-Identifier: BSL-1.0
//
// Puts the page together.
const step = figures.step_ms;
const stepMean = activities.reduce((sum, name) => sum + figures.breakdown_ms[name], 0);
const shareOfStep = (...names) => (stepMean > 0 ? names.reduce((sum, name) => sum + figures.breakdown_ms[name], 0) / stepMean : 0);

document.title = `${figures.model || figures.file} · gradus report`;
byId("title").textContent = figures.model || figures.file;
byId("subtitle").textContent = [count(figures.ranks, "rank"), figures.threads ? count(figures.threads, "thread") + " each" : "",
  figures.batch_size ? `batch of ${figures.batch_size} a ${figures.pipeline ? "replica" : "rank"}` : "", figures.model ? figures.file : ""].filter(Boolean).join(" · ");
const tiles = [["median step", step.count ? formatTime(step.median) : "–"]];
if (figures.images_per_second > 0) tiles.push(["images a second", formatNumber(figures.images_per_second)]);
tiles.push(["of the step is compute", formatShare(shareOfStep("forward", "backward", "update"))],
           ["is waiting", formatShare(shareOfStep("wait", "communicate"))]);
if (shareOfStep("exchange") >= 0.01) tiles.push(["is work of the exchange", formatShare(shareOfStep("exchange"))]);
if (figures.communicate_ms.total > 0) tiles.push(["of communication is hidden", formatShare(figures.overlap)]);
tiles.push(["the run", formatTime(figures.run_ms)]);
byId("tiles").append(...tiles.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));

document.querySelector("main").hidden = false;  // all at once, so that nothing moves while the page is read
const shown = makeTimeline();
byId("verdicts").append(...figures.verdicts.map((verdict) => verdictItem(verdict, shown.showExample)));
byId("cautions").append(...figures.cautions.map((text) => element("li", {}, text)));

if (figures.pipeline) {
  byId("stages").append(...stageTables());
  byId("stages").closest("section").hidden = false;
}
const showBreakdown = () => byId("breakdown").replaceChildren(
  ...breakdown(document.querySelector("input[name=breakdown]:checked").value));
for (const input of document.querySelectorAll("input[name=breakdown]")) input.addEventListener("change", showBreakdown);
showBreakdown();
byId("steps").append(...stepCharts(shown.showExample));
byId("overlap").append(...overlapChart());
byId("waiting").append(...waitingTables());
byId("servers").append(...serverTables());
byId("transfers").append(...transferTable());
byId("layers").append(...layerTable());

/** For the console and for tests: the figures, and what the timeline shows. */
globalThis.gradusReport = {figures, view: shown.state, topOf: shown.topOf};
