# SPDX-License-Identifier: BSL-1.0
"""A headless Chromium that a test drives by its DevTools protocol, over two pipes: nothing but Python is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The path of a Chromium, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """One page in one browser. What the page logs as an error, and what it tries to load, is kept."""

    def __init__(self, path, width=1400, height=950, limit=240):
        self.ends = time.monotonic() + limit
        self.folder = tempfile.mkdtemp(prefix="gradus_browser_")
        self.errors, self.requests, self.events = [], [], []
        self.buffer = b""
        self.number = 0
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        start = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", start, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}", f"--window-size={width},{height}",
             "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(os.path.join(self.folder, "stderr"), "wb"), env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(to_write)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def colours(self, scheme):
        """The colours that the page is asked for: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        """The next message."""
        while b"\0" not in self.buffer:
            left = self.ends - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.from_browser, 1 << 20)
            if not part:
                with open(os.path.join(self.folder, "stderr"), errors="replace") as file:
                    raise RuntimeError("the browser has ended: " + file.read()[-2000:])
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def keep(self, message):
        """Remembers what happened meanwhile."""
        method, what = message.get("method", ""), message.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details.get("text", "")))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(each.get("value", "")) for each in what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.errors.append(what["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.keep(answer)

    def open(self, path):
        """Loads a file; returns the seconds until its first picture was drawn."""
        for kept in (self.events, self.errors, self.requests):
            kept.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while "Page.loadEventFired" not in self.events:
            message = self.receive()
            self.keep(message)
        self.frame()
        return time.monotonic() - begin

    def run(self, expression):
        """The value of an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def frame(self):
        """Waits until what was changed has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def mouse(self, what, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, **more)

    def wheel(self, x, y, dy):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=dy)
        self.frame()

    def drag(self, x0, y0, x1, y1):
        self.mouse("mouseMoved", x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.7, 1.0):
            self.mouse("mouseMoved", x0 + part * (x1 - x0), y0 + part * (y1 - y0), button="left", buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)
        self.frame()

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def key(self, key):
        more = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def screenshot(self, path, whole=True):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"],
                                                            "height": min(size["height"], 6000), "scale": 1}}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))
