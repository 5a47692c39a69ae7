#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_report and works with its pages in a headless Chromium: check_page.py --program PROGRAM --folder FOLDER

Leaves screenshots in the folder. Ends with 77 (skipped) where there is no Chromium.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import browser

HERE = pathlib.Path(__file__).resolve().parent
failures = []


def expect(holds, message):
    if not holds:
        failures.append(message)
        print(f"FAILED: {message}")


def report(program, trace, *more):
    done = subprocess.run([program, str(trace), *more], capture_output=True, text=True, timeout=600)
    expect(done.returncode == 0, f"gradus_report {trace}: {done.stderr}")
    return done.stdout


def clean(page, what):
    expect(not page.errors, f"{what}: errors in the console: {page.errors}")
    loaded = [url for url in page.requests if not url.startswith(("file:", "data:"))]
    expect(not loaded, f"{what}: the page loads {loaded}")


def view(page):
    page.frame()
    return page.run("gradusReport.view()")


def place_of(page, selector):
    """Left, top, width, height of an element, after it has been scrolled to."""
    return page.run(f"""(() => {{
      const found = document.querySelector({json.dumps(selector)});
      found.scrollIntoView({{block: "center"}});
      const box = found.getBoundingClientRect();
      return [box.left, box.top, box.width, box.height];
    }})()""")


def picture(page):
    """The pixels of the timeline, for comparing."""
    page.frame()
    return page.run("document.getElementById('spans').toDataURL()")


def check_large(page, program, folder):
    """8 ranks, 100 steps of ResNet-50."""
    trace = folder / "resnet50.json"
    subprocess.run([sys.executable, "-B", HERE / "make_trace.py", trace], check=True, timeout=600)
    words = report(program, trace, "--csv", str(folder / "resnet50.csv"), "--json", str(folder / "resnet50_figures.json"))
    expect("30 % of the step is waiting for rank 1 in input" in words, f"verdicts: {words}")
    figures = json.loads((folder / "resnet50_figures.json").read_text())
    expect(figures["step_ms"]["count"] == 800, f"steps: {figures['step_ms']}")
    expect((folder / "resnet50.csv").read_text().startswith("table,rank,item"), "no CSV")

    seconds = page.open(folder / "resnet50.html")
    print(f"8 ranks, 100 steps of ResNet-50: first picture after {seconds:.2f} s")
    expect(page.run("document.title") == "resnet50 · gradus report", "title")
    expect(page.run("document.querySelectorAll('#verdicts > li').length") == len(figures["verdicts"]), "verdicts")
    expect("rank 1 in input" in page.run("document.getElementById('verdicts').textContent"), "words of the verdicts")
    for section in ("breakdown", "steps", "overlap", "waiting", "servers", "transfers", "layers"):
        expect(page.run(f"document.querySelectorAll('#{section} table').length") > 0, f"no table in {section}")
    shift = page.run("""new Promise((done) => {
      new PerformanceObserver((list) => done(list.getEntries().reduce((sum, each) => sum + each.value, 0)))
        .observe({type: "layout-shift", buffered: true});
      setTimeout(() => done(0), 300);
    })""")
    expect(shift < 0.01, f"the layout shifts by {shift}")

    left, top, width, height = place_of(page, "#timeline")
    first = picture(page)
    whole = view(page)
    expect(whole["begin"] == 0 and whole["rows"] > 50, f"at first: {whole}")
    # The wheel zooms at the pointer: the time under it stays.
    x, y = left + 168 + (width - 168) / 4, top + 150
    for _ in range(5):
        page.wheel(x, y, -400)
    near = view(page)
    expect(near["end"] - near["begin"] < 0.2 * whole["end"], f"the wheel does not zoom: {near}")
    expect(abs(near["begin"] + (near["end"] - near["begin"]) / 4 - whole["end"] / 4) < 0.02 * whole["end"],
           f"the wheel does not zoom at the pointer: {near}")
    expect(picture(page) != first, "the picture stays the same after zooming")
    page.wheel(x, y, 300)
    expect(view(page)["end"] - view(page)["begin"] > near["end"] - near["begin"], "the wheel does not zoom out")
    # Dragging moves; on the axis it marks what to zoom to.
    before = view(page)
    page.drag(left + 700, top + 150, left + 500, top + 150)
    after = view(page)
    expect(after["begin"] > before["begin"] and abs((after["end"] - after["begin"]) - (before["end"] - before["begin"])) < 1e-6,
           f"dragging does not move: {before} {after}")
    page.drag(left + 400, top + 44 + 10, left + 600, top + 44 + 10)
    expect(view(page)["end"] - view(page)["begin"] < 0.4 * (after["end"] - after["begin"]), "marking does not zoom")
    # Keys, with the focus where a press has left it
    page.key("0")
    expect(view(page)["end"] - view(page)["begin"] == whole["end"], "the key 0 does not show the whole run")
    page.key("s")
    step = view(page)
    expect(150 < step["end"] - step["begin"] < 260, f"the key s does not show a step: {step}")
    for key, moves in (("ArrowRight", 1), ("ArrowLeft", -1), ("]", 1), ("[", -1)):
        before = view(page)["begin"]
        page.key(key)
        expect((view(page)["begin"] - before) * moves > 0, f"the key {key} does not move")
    page.key("+")
    expect(view(page)["end"] - view(page)["begin"] < 0.7 * (step["end"] - step["begin"]), "the key + does not zoom")
    page.key("s")
    page.key(".")
    page.key(".")
    expect(view(page)["selected"] is not None, "the key . selects nothing")
    expect(page.run("document.getElementById('selected').textContent").find("duration") > 0, "no details")
    page.key("Escape")
    # A tooltip, and a span selected by a click: the second row of rank 0 is that of the phases.
    _, canvas_top, _, _ = page.run("(() => {const b = document.getElementById('spans').getBoundingClientRect();"
                                   "return [b.left, b.top, b.width, b.height]})()")
    y = canvas_top + 26 + 6 + 17 + 8
    page.mouse("mouseMoved", left + 168 + 200, y)
    page.frame()
    expect(not page.run("document.getElementById('tooltip').hidden"), "no tooltip")
    expect("of the step" in page.run("document.getElementById('tooltip').textContent"), "the tooltip says nothing")
    page.click(left + 168 + 200, y)
    expect(view(page)["selected"] in ("forward", "backward"), f"a click selects {view(page)['selected']}")
    page.screenshot(folder / "resnet50_step.png", whole=False)
    # Search
    page.run("document.getElementById('search').focus()")
    page.call("Input.insertText", text="all_reduce gradients 14")
    page.frame()
    found = page.run("document.getElementById('found').textContent")
    expect(found.startswith("800 spans, "), f"search finds {found!r}")
    page.key("Enter")
    expect(view(page)["selected"] == "all_reduce gradients 14", f"Enter goes to {view(page)['selected']}")
    expect("rank 1," in page.run("document.getElementById('selected').textContent"), "who was waited for is not told")
    page.run("document.getElementById('search').select()")
    page.call("Input.insertText", text="rank 2 conv1 backward nothing-like-this")
    page.frame()
    expect(page.run("document.getElementById('found').textContent") == "nothing found", "search finds what is not there")
    # From a verdict to its example
    page.run("document.querySelector('#verdicts button').click()")
    expect(view(page)["end"] - view(page)["begin"] < whole["end"], "a verdict does not show its example")
    page.run("document.querySelector('input[value=run_ms]').click()")
    expect("between steps" in page.run("document.getElementById('breakdown').textContent"), "no breakdown of the run")
    for rows in ("tall", "phases", "normal"):
        page.run(f"document.getElementById('rows').value = '{rows}';"
                 "document.getElementById('rows').dispatchEvent(new Event('change'))")
    for width in (1000, 1900):
        page.resize(width, 1000)
        page.frame()
        wide = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        expect(wide[0] <= wide[1], f"at {width} pixels the page is {wide[0]} wide")
        page.screenshot(folder / f"resnet50_{width}.png")
    clean(page, "resnet50")


def check_messages(page, program, folder):
    """Workers and servers: arrows, in dark colours."""
    trace = folder / "servers.json"
    subprocess.run([sys.executable, "-B", HERE / "make_trace.py", trace, "--ranks", "4", "--servers", "1", "--steps", "5"],
                   check=True, timeout=600)
    report(program, trace)
    page.resize(1400, 950)
    page.colours("dark")
    page.open(folder / "servers.html")
    expect(page.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)", "no dark colours")
    expect("rank 0 → rank 1" in page.run("document.getElementById('servers').textContent"), "no links")
    page.run("document.getElementById('one-step').click()")
    with_arrows = picture(page)
    page.run("document.getElementById('arrows').click()")
    expect(picture(page) != with_arrows, "there are no arrows")
    page.screenshot(folder / "servers.png")
    clean(page, "servers")


def check_stages(page, program, folder):
    """A pipeline of 3 stages, whose bubble is known; and pages of other trainings have no section on stages."""
    trace = folder / "stages.json"
    subprocess.run([sys.executable, "-B", HERE / "make_trace.py", trace, "--ranks", "6", "--stages", "3", "--steps", "10",
                    "--micro-batches", "6", "--bytes-per-us", "20000"], check=True, timeout=120)
    words = report(program, trace, "--json", str(folder / "stages_figures.json"))
    expect("is bubble, most of it filling and draining the pipeline: " in words, f"verdicts: {words}")
    figures = json.loads((folder / "stages_figures.json").read_text())
    pipeline = figures["pipeline"]
    expect((pipeline["replicas"], pipeline["micro_batches"], pipeline["schedule"]) == (2, 6, "one_f_one_b"),
           f"pipeline: {pipeline}")
    for rank in pipeline["ranks"]:
        its = rank["bubble"]
        expect(abs(its["all"] - its["filling"] - its["unequal"] - its["rest"]) < 1e-9, f"causes do not add up: {its}")
    page.resize(1400, 950)
    page.open(folder / "stages.html")
    expect(not page.run("document.getElementById('stages').closest('section').hidden"), "the section on stages is hidden")
    cells = page.run("[...document.querySelectorAll('#stages table')[0].querySelectorAll('tbody tr')].map("
                     "(row) => [...row.children].map((cell) => cell.textContent))")
    expect(len(cells) == 3 and [row[1] for row in cells] == ["0, 3", "1, 4", "2, 5"], f"stages: {cells}")
    expect(cells[0][2].startswith("conv1 … ") and len(cells[0]) == 10, f"a stage: {cells[0]}")
    expect(page.run("document.querySelectorAll('#stages .bar').length") == 3, "bars of the stages")
    expect("with 12 micro-batches" in page.run("document.getElementById('stages').textContent"), "no prediction")
    expect("batch of 64 a replica" in page.run("document.getElementById('subtitle').textContent"), "the batch is a rank's")
    # A pass says its micro-batch: on the span, and in the details of the selection.
    page.run("document.getElementById('one-step').click()")
    page.run("document.getElementById('spans').focus()")
    page.run("""(() => {
      globalThis.written = new Set();
      const draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        written.add(text);
        return draw.call(this, text, ...more);
      };
    })()""")
    page.key("+")
    page.frame()
    written = page.run("[...written]")
    expect(any(text in written for text in ("F3", "forward 3")) and any(text in written for text in ("B2", "backward 2")),
           f"texts: {written}")
    page.run("document.getElementById('search').focus()")
    page.call("Input.insertText", text="backward rank 2")
    page.key("Enter")
    page.run("document.getElementById('spans').focus()")
    for _ in range(40):
        if "micro-batch" in page.run("document.getElementById('selected').textContent"):
            break
        page.key("n")
    details = page.run("document.getElementById('selected').textContent")
    expect("stage2" in details and "micro-batch" in details, f"details of a pass: {details}")
    page.screenshot(folder / "stages.png")
    clean(page, "stages")
    page.open(folder / "servers.html")
    expect(page.run("document.getElementById('stages').closest('section').hidden"), "an empty section on stages")
    clean(page, "servers")


def check_many(page, program, folder):
    """64 ranks, 8 of them servers: messages are folded, bars are few, and all are there on request."""
    trace = folder / "many.json"
    subprocess.run([sys.executable, "-B", HERE / "make_trace.py", trace, "--ranks", "64", "--servers", "8", "--steps", "4",
                    "--slow-rank", "40", "--evaluate-every", "100"], check=True, timeout=120)
    report(program, trace)
    page.resize(1400, 950)
    page.colours("light")
    seconds = page.open(folder / "many.html")
    print(f"64 ranks, 8 servers: first picture after {seconds:.2f} s")
    folded = view(page)["height"]
    expect(folded < 64 * 110, f"with messages folded the timeline is {folded} pixels high")
    left, top, _, _ = place_of(page, "#spans")
    # The row of the messages of a worker, below the axis
    page.run("document.getElementById('scroller').scrollTop = gradusReport.topOf(9, 2) - 100")
    first = picture(page)
    page.click(left + 140, top + 100 + 8)
    opened = view(page)["height"]
    expect(opened > folded + 30, f"a click on the name opens no messages: {folded} and {opened} pixels")
    expect(picture(page) != first, "the picture stays the same with open messages")
    page.click(left + 140, top + 100 + 8)
    expect(view(page)["height"] == folded, "a second click does not fold them again")
    page.run("document.getElementById('rows').value = 'messages';"
             "document.getElementById('rows').dispatchEvent(new Event('change'))")
    expect(view(page)["height"] > folded + 500, "there is no way to open all messages")
    page.run("document.getElementById('rows').value = 'normal';"
             "document.getElementById('rows').dispatchEvent(new Event('change'))")
    page.run("document.getElementById('scroller').scrollTop = gradusReport.topOf(9, 2) - 100")
    page.frame()
    page.click(left + 168 + 160, top + 100 + 8)
    expect((view(page)["selected"] or "").startswith(("send", "receive")), "no message is selected in the folded row")
    page.screenshot(folder / "many_timeline.png", whole=False)
    names = "[...document.querySelectorAll('#breakdown .bars .name')].map((each) => each.textContent)"
    shown = page.run(names)
    expect(len(shown) == 10 and shown[0].startswith("rank 40 "), f"bars: {shown}")
    expect(page.run("document.querySelectorAll('#overlap .bars .name').length") == 10, "bars of the overlap")
    page.run("document.querySelector('#breakdown p button').click()")
    shown = page.run(names)
    expect(len(shown) == 56 and shown[0].startswith("rank 8 "), f"all bars: {shown}")
    page.run("document.querySelector('#breakdown p button').click()")
    expect(len(page.run(names)) == 10, "the bars cannot be made few again")
    wide = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    expect(wide[0] <= wide[1], f"the page is {wide[0]} wide")
    page.screenshot(folder / "many.png")
    clean(page, "many")


def check_hostile(page, program, folder):
    """Names that want to be markup, extreme times, a rank without spans."""
    bad = "</script><script>globalThis.hacked = 1</script><img src=x onerror='globalThis.hacked = 1'>\"'`${1}\u2028"
    events = [{"ph": "X", "pid": 0, "tid": 0, "cat": "step", "name": bad, "ts": -1e15, "dur": 2e14},
              {"ph": "X", "pid": 0, "tid": 0, "cat": "step", "name": "step", "ts": 1e15, "dur": 0},
              {"ph": "X", "pid": 0, "tid": 1, "cat": bad, "name": bad, "ts": -1e15, "dur": 0.001,
               "args": {"layer": bad, "bucket": bad, "for": bad, "operation": bad, "bytes": 1}},
              {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name", "args": {"name": bad}}]
    other = {"gradus": "1", "ranks": 2, "model": bad, "hosts": [bad, ""], "dropped": [0, 5]}
    trace = folder / "hostile.json"
    trace.write_text(json.dumps({"traceEvents": events, "otherData": other}))
    report(program, trace)
    page.resize(1000, 900)
    page.colours("light")
    page.open(folder / "hostile.html")
    expect(page.run("globalThis.hacked") is None, "a name of the trace has been run")
    expect(page.run("document.getElementById('title').textContent") == bad, "the model's name is changed")
    expect(page.run("document.images.length") == 0, "a name has become an image")
    left, top, width, _ = place_of(page, "#timeline")
    for _ in range(40):
        page.wheel(left + 168, top + 100, -600)
    page.run("document.getElementById('spans').focus()")
    for key in (".", ".", "s", "]", "[", "Enter", "n", "0", "ArrowDown"):
        page.key(key)
    page.mouse("mouseMoved", left + 300, top + 85)
    page.frame()
    clean(page, "hostile")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = browser.find()
    if path is None:
        print("skipped: there is no Chromium (Debian: chromium)")
        sys.exit(77)
    with browser.Browser(path) as page:
        for check in (check_large, check_messages, check_stages, check_many, check_hostile):
            check(page, options.program, options.folder)
    if failures:
        sys.exit(f"{len(failures)} failures")
    print("all pages work")


if __name__ == "__main__":
    main()
