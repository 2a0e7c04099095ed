"""The Java that Spark runs on, and the process of it that a backend starts and stops."""

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
_ANSWER_S: Final = 20  # for `java -version`
_STOP_S: Final = 15  # for Spark to stop by itself, before it is killed


def find() -> tuple[Path, int]:
    """The Java that Spark would use, and its version: that of JAVA_HOME, else the first on PATH.

    Raises:
        UnciaError: there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise UnciaError(f"JAVA_HOME is {home}, but there is no {path}", _HINT)
    else:
        found = shutil.which("java")
        if found is None:
            raise UnciaError("Spark runs on Java, and there is no java on the PATH", _HINT)
        path = Path(found)
    version = _version(path)
    if version is None:
        raise UnciaError(f"{path} does not tell its version, so it cannot run Spark", _HINT)
    if version < OLDEST:
        raise UnciaError(f"{path} is Java {version}; Spark needs {OLDEST} or newer", _HINT)
    return path, version


def _version(path: Path) -> int | None:
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def main() -> None:
    """Print the path of the Java that Spark would use; exit 1 if there is none."""
    try:
        print(find()[0])
    except UnciaError as error:
        raise SystemExit(str(error)) from error


class Machine:
    """A Java process that PySpark talks to, its output kept in a file."""

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        """Start it.

        Args:
            settings: Spark's, those of the process itself (memory) among them.
            log: where its output goes.

        Raises:
            UnciaError: it does not come up.
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
            raise UnciaError(f"Spark's Java does not start: {self.said()}", _HINT) from error

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        process = self.gateway.proc
        return process is None or process.poll() is None

    def said(self, lines: int = 3) -> str:
        """The last lines of its output."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        kept = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        return "; ".join(kept[-lines:]) or "it said nothing"

    def says(self, text: str) -> bool:
        """Whether a text is in its output."""
        return self._log.exists() and text.encode() in self._log.read_bytes()

    def stop(self, session: Any) -> None:
        """Stop a session, the process, and whatever it started; kills what does not stop."""
        from pyspark import SparkContext

        # An interrupted call leaves the connection of its thread useless: another thread has its
        # own. Should Java not answer, it still ends when its input does.
        stopping = threading.Thread(target=_stop, args=(session,), daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        process = self.gateway.proc
        if process is not None:  # else it was there before, and PySpark was told to use it
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
        # Java has ended, or ends: then there is nothing left to stop.
        return


if __name__ == "__main__":
    main()
