"""Translating Spark's errors, which are Java stack traces or the end of its process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from uncia.backends.errors import overflow_error
from uncia.backends.java import Machine
from uncia.errors import UnciaError

_OVERFLOW: Final = re.compile(r"\[(ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|CAST_OVERFLOW)")
_MEMORY: Final = re.compile(r"OutOfMemoryError|Java heap space|UNABLE_TO_ACQUIRE_MEMORY")
_NO_SYSTEM: Final = re.compile(
    r'No FileSystem for scheme "(\w+)"|Class (org\.apache\.hadoop\.fs\.[\w.]+) not found'
)
_FILE: Final = re.compile(
    r"(?:reading file|not a Parquet file:?) (?:file:/*(?=/))?(\S+?)\.?(?:\s|$)"
)


@contextmanager
def translate_errors(machine: Machine | None) -> Iterator[None]:
    """Translate PySpark's errors to `UnciaError`.

    Args:
        machine: Spark's process, whose output says why it ended; None if others started it.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise _sentence(error, machine) from error


def _sentence(error: BaseException, machine: Machine | None) -> UnciaError:
    text = str(error)
    ended = machine is not None and not machine.alive
    heap = machine is not None and machine.has_logged("java.lang.OutOfMemoryError")
    if _MEMORY.search(text) or (heap and (ended or isinstance(error, (ConnectionError, EOFError)))):
        return UnciaError("Spark is out of memory", "Give more with --memory-limit.")
    if machine is not None and ended:
        return UnciaError(f"Spark ended: {machine.last_lines()}", exit_code=1)
    if _OVERFLOW.search(text):
        return overflow_error(_first(text))
    if "No space left on device" in text:
        return UnciaError("the disk is full: Spark cannot write what it computes", exit_code=1)
    if match := _NO_SYSTEM.search(text):
        return UnciaError(
            f"Spark has no file system for this address ({match.group(1) or match.group(2)} is"
            " missing)",
            "Give it the library, such as org.apache.hadoop:hadoop-aws for s3a:// (set"
            " spark.jars.packages in spark-defaults.conf); see the guide on bills on Spark.",
        )
    if match := _FILE.search(text):
        return UnciaError(f"{match.group(1)} cannot be read as Parquet: {_first(text)}")
    return UnciaError(f"Spark cannot compute this: {_first(text)}")


def _first(text: str) -> str:
    """The first meaningful line of a stack trace, without the exception's class."""
    if "awaitResult" in text.partition("\n\tat ")[0] and "\nCaused by: " in text:
        text = text.split("\nCaused by: ", 1)[1]
    text = re.sub(r"^An error occurred while calling \S+\n: ", "", text)
    line = text.strip().partition("\n")[0]
    line = re.sub(r"^(?:[a-z]\w*\.)+\w+: ", "", line)
    return re.sub(r" If necessary set .*| SQLSTATE: \w+", "", line).strip()
