"""One real browser for many pages, driven over a pipe: what it complains about, asks for and shows."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
ACCESSIBLE = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")


class Browser:
    """A headless Chromium; ``with Browser(folder) as page: page.open(path)``."""

    def __init__(self, folder: Path) -> None:
        # The browser reads commands from descriptor 3 and answers on 4.
        self._process = subprocess.Popen(
            [
                "sh",
                "-c",
                'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null',
                CHROMIUM,
                *_FLAGS,
                f"--user-data-dir={folder / 'browser'}",
                "about:blank",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._left, self._number, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self._process.stdin.write(b'{"id":0,"method":"Browser.close"}\0')
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def call(self, method: str, **parameters: object) -> dict:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        about = {"id": self._number, "method": method, "params": parameters}
        about |= {"sessionId": self._session} if self._session else {}
        self._process.stdin.write(json.dumps(about).encode() + b"\0")
        while (found := self._next()).get("id") != self._number:
            self.events.append(found)
        assert "error" not in found, found
        return found["result"]

    def _next(self) -> dict:
        while b"\0" not in self._left:
            pipe = self._process.stdout.fileno()
            assert select.select([pipe], [], [], 60)[0], "the browser does not answer"
            part = os.read(pipe, 1 << 20)
            assert part, "the browser went away"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        return json.loads(text)

    def open(
        self, path: Path | str, width: int = 1280, *, dark: bool = False, media: str = "screen"
    ) -> None:
        """Load a file or an address at a width, with light or dark preference, for a medium."""
        self.look(width, dark=dark, media=media)
        self.events.clear()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        self._wait_for_load()

    def loaded(self, expression: str) -> None:
        """Evaluate an expression that loads a page, and wait until it is there."""
        self.events.clear()
        self.ask(f"setTimeout(() => {{ {expression} }}); 0")
        self._wait_for_load()

    def _wait_for_load(self) -> None:
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def look(self, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """Change the width, preference and medium of the loaded page."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def ask(self, expression: str) -> object:
        """Evaluate an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Console messages, exceptions and log entries since the page was opened."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"])[:400] for e in self.events if e.get("method") in kinds]

    @property
    def requests(self) -> list[str]:
        """What the page asked the network for, itself aside."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [p["request"]["url"] for p in sent if p.get("type") != "Document"]

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.ask(f"!!({condition})"):
            assert time.monotonic() < end, f"{condition}: {self.complaints}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press a key, or type a letter, where the focus is."""
        about: dict[str, object] = {"key": key}
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowRight": 39}.get(key)
        about |= {"windowsVirtualKeyCode": code} if code else {}
        about |= {"text": {"Enter": "\r"}.get(key, key)} if len(key) == 1 or key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **about)

    def faults(self) -> list[str]:
        """What stands in a reader's way: names, headings, table heads, contrast, width."""
        return self.ask(ACCESSIBLE)

    def shot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def view(self, path: Path) -> None:
        """Write a picture of what the window shows."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def printed(self, path: Path) -> None:
        """Write what a printer would get."""
        self.call("Emulation.setEmulatedMedia", media="print", features=[])
        path.write_bytes(
            base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
        )
