"""The Java process that Spark runs in: finding, starting and stopping it."""

import os
import re
import shutil
import subprocess
import threading
import warnings
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError

OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""

_HINT: Final = (
    f"Install Java {OLDEST} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or"
    " name its folder in JAVA_HOME."
)
_VERSION_S: Final = 20  # timeout of `java -version`
_STOP_S: Final = 15  # timeout of a stop, after which Spark is killed


def find() -> tuple[Path, int]:
    """Find the Java that Spark would use, in JAVA_HOME or on the PATH.

    Returns:
        Its path and its version.

    Raises:
        UnciaError: there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise UnciaError(f"JAVA_HOME is {home}, but there is no {path}", _HINT)
    else:
        command = shutil.which("java")
        if command is None:
            raise UnciaError("Spark runs on Java, and there is no java on the PATH", _HINT)
        path = Path(command)
    version = _version(path)
    if version is None:
        raise UnciaError(f"{path} does not print its version, so it cannot run Spark", _HINT)
    if version < OLDEST:
        raise UnciaError(f"{path} is Java {version}; Spark needs {OLDEST} or newer", _HINT)
    return path, version


def _version(path: Path) -> int | None:
    try:
        done = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def main() -> None:
    """Print the path of the Java that Spark would use, or exit 1."""
    try:
        print(find()[0])
    except UnciaError as error:
        raise SystemExit(str(error)) from error


class Machine:
    """A Java process that PySpark talks to; its output goes to a file."""

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        """Start the process.

        Args:
            settings: of Spark, and of the process itself (memory).
            log: the file for its output.

        Raises:
            UnciaError: it does not start.
        """
        from pyspark import SparkConf, java_gateway
        from pyspark.errors import PySparkException

        self._log = log
        launch: Any = java_gateway.launch_gateway
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        try:
            with log.open("wb") as output:
                self.gateway: Any = launch(
                    conf, {"stdout": output, "stderr": output, "start_new_session": True}
                )
        except (PySparkException, OSError) as error:
            raise UnciaError(f"Spark's Java does not start: {self.last_lines()}", _HINT) from error

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        process = self.gateway.proc
        return process is None or process.poll() is None

    def last_lines(self, lines: int = 3) -> str:
        """The last lines of its output."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        kept = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        return "; ".join(kept[-lines:]) or "without output"

    def has_logged(self, text: str) -> bool:
        """Whether its output contains a text."""
        return self._log.exists() and text.encode() in self._log.read_bytes()

    def stop(self, session: Any) -> None:
        """Stop a session, the process and what it started; kill what does not stop."""
        from pyspark import SparkContext

        # An interrupted call leaves its thread's connection unusable; another thread opens a new
        # one. A Java that does not answer still ends when its input is closed.
        stopping = threading.Thread(target=_stop, args=(session,), daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        process = self.gateway.proc
        if process is not None:  # None: PySpark was configured to use a running one
            _quietly(self.gateway.shutdown)
            if process.stdin is not None:
                _quietly(process.stdin.close)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None


def _stop(session: Any) -> None:
    if session is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that Java has ended already
            _quietly(session.stop)


def _quietly(call: Any) -> None:
    from py4j.protocol import Py4JError

    try:
        call()
    except (Py4JError, OSError, AttributeError, AssertionError):
        # Java has ended already.
        return


if __name__ == "__main__":
    main()
