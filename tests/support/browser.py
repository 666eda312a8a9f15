"""A headless Chromium that a test can drive: the DevTools protocol over two pipes, by the standard library alone."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds: machines are sometimes busy


class Browser:
    """One page. `complaints` holds what the console said above a log, uncaught errors and failed loads."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        assert CHROMIUM
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (child_reads, self.out), (self.into, child_writes) = os.pipe(), os.pipe()

        def place_pipes() -> None:  # DevTools reads from 3 and writes to 4
            read, write = os.dup(child_reads), os.dup(child_writes)
            os.dup2(read, 3)
            os.dup2(write, 4)
            for end in (3, 4):  # `dup` itself may return 3 or 4, which matplotlib frees at a fork
                os.set_inheritable(end, True)

        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(child_reads)
        os.close(child_writes)
        self.number, self.buffer, self.session = 0, b"", None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def open(self, page: Path, fragment: str = "") -> None:
        self.call("Page.navigate", url="about:blank")  # else a fragment alone would not load the page again
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.wait("document.readyState === 'complete' && document.documentElement?.dataset.ready === 'yes'")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}; {self.complaints}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A real click, where the element is on the screen: covered or hidden ones would not get it."""
        x, y = self.middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            held = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def drag(self, start: tuple[float, float], end: tuple[float, float], moves: int = 8) -> None:
        """Press the mouse at one place of the window, move, and release it at another."""
        held = {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=start[0], y=start[1])
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **held)
        for i in range(1, moves + 1):
            x, y = (a + (b - a) * i / moves for a, b in zip(start, end, strict=True))
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **held)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 else "")

    def move(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        x, y = self.middle(selector, across, down)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def middle(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        found = self.run(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); if (!node) return null;"
            "node.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            "const b = node.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        assert found and found[2] and found[3], f"{selector} is not on the page"
        return found[0] + across * found[2], found[1] + down * found[3]

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, whole: bool = False) -> bytes:
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(picture["data"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], PATIENCE)
            assert ready, "Chromium does not answer"
            part = os.read(self.into, 1 << 20)
            assert part, "Chromium ended"
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        kind, told = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        elif kind == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"])[:500])
        elif kind == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not told["request"]["url"].startswith("data:"):
            self.requests.append(told["request"]["url"])
