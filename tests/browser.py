"""Chromium without a window, driven over a pipe: opens a page, clicks in it, keeps its files."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")

_DEADLINE_S: Final = 60.0


def find() -> str | None:
    """The browser's path, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser that has one page open.

    Args:
        to_browser: file descriptor of the pipe for commands, which are JSON and end in a NUL.
        from_browser: that of answers and events.
        downloads: where files are saved.
    """

    def __init__(self, to_browser: int, from_browser: int, downloads: Path) -> None:
        self._to, self._from, self.downloads = to_browser, from_browser, downloads
        self._sent, self._session, self._rest = 0, "", b""
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.screen: dict[str, Any] | None = None
        self.is_dark = False

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._sent:
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            elif answer.get("method") == "Log.entryAdded":
                self.messages.append(answer["params"]["entry"]["text"])
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        result: dict[str, Any] = json.loads(message)
        return result

    def open(self, path: Path) -> None:
        """Open a file, and wait until every chart is drawn."""
        drawn = (
            "[...document.querySelectorAll('[data-chart]')].every((chart) => chart.dataset.drawn)"
        )
        # The empty page before it is complete as well.
        here = "location.protocol === 'file:' && document.readyState === 'complete'"
        self.visit(path.as_uri(), f"{here} && {drawn}")

    def visit(self, address: str, condition: str) -> None:
        """Open a page, and wait until an expression in it is true."""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        folder = str(self.downloads)
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        self._session = attached["sessionId"]
        self.call("Network.enable")
        if self.screen is not None:
            self.call("Emulation.setDeviceMetricsOverride", **self.screen)
        self.call("Page.enable")
        self.call("Log.enable")
        if self.is_dark:
            dark = [{"name": "prefers-color-scheme", "value": "dark"}]
            self.call("Emulation.setEmulatedMedia", features=dark)
        self.call("Page.navigate", url=address)
        self.wait(condition)

    def picture(self) -> bytes:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def run(self, script: str) -> Any:
        """The value of an expression in the page, as if a user had caused it."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _DEADLINE_S
        while not self.run(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.05)

    def saved(self, name: str) -> bytes:
        """The content of a file that the page saves."""
        path = self.downloads / name
        deadline = time.monotonic() + _DEADLINE_S
        while not path.exists():
            assert time.monotonic() < deadline, f"{name} was not saved"
            time.sleep(0.05)
        return path.read_bytes()


@contextmanager
def started(folder: Path) -> Iterator[Browser]:
    """A browser with its files in ``folder``, ended afterwards."""
    path = find()
    assert path is not None
    downloads = folder / "downloads"
    downloads.mkdir(parents=True)
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    # The browser reads commands from descriptor 3 and answers on 4.
    command = (
        f'exec 3<&{their_input} 4>&{their_output}; exec "$0" --headless --no-sandbox --disable-gpu'
        ' --disable-dev-shm-usage --no-first-run --remote-debugging-pipe --user-data-dir="$1"'
        " --window-size=1400,1000"
    )
    process = subprocess.Popen(
        ["/bin/bash", "-c", command, path, str(folder / "profile")],
        pass_fds=(their_input, their_output),
        stderr=subprocess.DEVNULL,
    )
    os.close(their_input)
    os.close(their_output)
    browser = Browser(our_output, our_input, downloads)
    try:
        yield browser
    finally:
        os.close(our_output)
        os.close(our_input)
        process.terminate()
        process.wait(timeout=120)
