"""A headless Chromium for tests of pages, over its debugging pipe: what is wrong with a page, and how it looks."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_browser():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page at a time. `messages` has what the page wrote to its console, and its exceptions; `requests` what it
    asked for."""

    def __init__(self, profile, limit=120):
        self.limit, self.number, self.pending = limit, 0, b""
        self.messages, self.requests, self.events = [], [], []
        # The browser reads its file descriptor 3 and writes to 4. Both are taken here, so that nothing else gets them.
        taken = []
        while not taken or taken[-1] <= 4:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()

        def connect():
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-extensions", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=connect, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for descriptor in [commands, answers, *taken]:
            os.close(descriptor)
        target = self.call("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", session=False, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.commands)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)

    def _read(self, deadline):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.answers, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(f"the browser {'ended' if ready else 'does not answer'}")
            self.pending += data
        line, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(line)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append(("exception", details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append((parameters["type"], " ".join(str(arg.get("value", arg.get("description"))) for arg in parameters["args"])))
        elif method == "Log.entryAdded":
            self.messages.append((parameters["entry"]["level"], parameters["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        return message

    def call(self, method, session=True, **parameters):
        """Sends a command of the DevTools protocol; its result."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        deadline = time.monotonic() + self.limit
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer.get("method"))

    def evaluate(self, expression):
        """The value of an expression in the page; waits for promises."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return result["result"].get("value")

    def look_like(self, width, height=900, dark=False, touch=False):
        """Before `open`, or for a page that is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, path):
        """A file; returns when it is loaded."""
        self.messages, self.requests, self.events = [], [], []
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + self.limit
        while "Page.loadEventFired" not in self.events:
            self.events.append(self._read(deadline).get("method"))

    def show_all(self):
        """Makes the window as high as the page, so that everything is in view, and waits until charts are drawn."""
        width = self.evaluate("innerWidth")
        touch = self.evaluate("matchMedia('(pointer: coarse)').matches")
        for _ in range(3):
            height = self.evaluate("document.documentElement.scrollHeight")
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
            self.evaluate("new Promise((done) => setTimeout(done, 300))")
        deadline = time.monotonic() + self.limit
        waiting = "[...document.querySelectorAll('.chart')].filter((c) => c.offsetParent && !c.querySelector('.main-svg')).length"
        while self.evaluate(waiting):
            if time.monotonic() > deadline:
                raise RuntimeError("charts were not drawn")
            self.evaluate("new Promise((done) => setTimeout(done, 100))")

    def screenshot(self, path):
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
