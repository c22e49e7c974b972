"""Chromium without a window, over the DevTools protocol on a pair of pipes: one page, and all that it complained of and asked for."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
NOT_OURS = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync", "--disable-gpu")


class BrowserError(Exception):
    pass


def find():
    """The browser of this machine; None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """`complaints`: what the page wrote to its console at level warning or error, uncaught exceptions, what a policy blocked; `urls`: all that it asked for."""

    def __init__(self, program, folder):
        """folder: of the browser's profile and of its log, which outlive it."""
        self.complaints, self.urls = [], []
        self.buffer, self.number, self.session = b"", 0, None
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # a sandbox is refused to root
        self.log = folder / "browser.log"
        with open(self.log, "wb") as log:  # descriptors 3 and 4 are the protocol's
            self.process = subprocess.Popen(["bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash", str(theirs_in), str(theirs_out), program, "--headless=new", *NOT_OURS, *root,
                                             "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"], pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log)
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError("the browser does not answer")
            some = os.read(self.back, 1 << 20)
            if not some:
                raise BrowserError("the browser has ended:\n" + self.log.read_text(errors="replace")[-2000:])
            self.buffer += some
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, seconds=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.note(message.get("method"), message.get("params", {}))

    def note(self, event, told):
        if event == "Network.requestWillBeSent":
            self.urls.append(told["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:400])
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self.complaints.append(told["entry"]["text"][:400])
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("warning", "error", "assert"):
            self.complaints.append(json.dumps(told["args"])[:400])

    def show(self, width, height, scheme):
        """The window's size in pixels, and "light" or "dark"."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserError(f"{url}: {failed}")

    def value(self, expression):
        """Returns the value of a JavaScript expression in the page, as JSON; for a promise its result."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise BrowserError(f"{expression[:100]}: {told['result'].get('description', told)}")
        return told["result"].get("value")

    def press(self, key, code):
        """A key, down and up: ("Tab", 9), ("Enter", 13)."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
