"""A headless Chromium for tests of pages, over its debugging pipe: what is wrong with a page, and how it looks."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

from limits import HANGS

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_browser():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page at a time. `messages` has what the page wrote to its console, and its exceptions; `requests` what it
    asked for."""

    def __init__(self, profile, limit=HANGS):
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

    def settle(self):
        """Waits until the page of a report has drawn what it has to."""
        self.evaluate("""new Promise((done) => {
            const look = () => document.documentElement.dataset.ready ? requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))) : setTimeout(look, 20);
            look();
        })""")

    def press(self, key, text=None):
        """A key by its name ("ArrowRight", "Enter", "n"), as if typed."""
        text = text or {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, ord(key.upper()) if len(key) == 1 else 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click_at(self, x, y):
        """With the mouse, in pixels of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click(self, selector, share=(0.5, 0.5)):
        """With the mouse on the first element that fits, at a share of its width and height."""
        x, y = self.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center"}});
            const box = element.getBoundingClientRect();
            return [box.left + {share[0]} * box.width, box.top + {share[1]} * box.height];
        }})()""")
        self.click_at(x, y)

    def download(self, selector, folder):
        """Clicks on what saves a file; its bytes."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.call("Browser.setDownloadBehavior", session=False, behavior="allow", downloadPath=str(folder), eventsEnabled=True)
        self.events = []
        self.click(selector)
        deadline = time.monotonic() + self.limit
        while True:
            files = [path for path in folder.iterdir() if path.suffix != ".crdownload"]
            if files and "Browser.downloadProgress" in self.events:
                return files[0].read_bytes()
            if time.monotonic() > deadline:
                raise RuntimeError("nothing was saved")
            self.evaluate("new Promise((done) => setTimeout(done, 50))")

    def screenshot(self, path):
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
