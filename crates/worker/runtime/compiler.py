"""Compiles a package's sources: the handler of the instance that the platform runs for a package.

Nothing of the package is imported or run. What cannot be compiled is null in the answer.
"""

import py_compile
import resource
import warnings
from binascii import b2a_base64
from pathlib import Path

_PACKAGE = Path("/var/runtime/sources")
_SCRATCH = Path("/tmp/compiled.pyc")
# What the platform takes for an answer, in base64, with room for the last file of a batch.
_MOST_BYTES = 2 << 20
_MOST_MEMORY = 1 << 30

# The control group's limit is lower, but there may be no control group.
resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
warnings.simplefilter("ignore")


def handler(event, context):
    compiled, size = [], 0
    folder = Path(event["folder"])
    for path in event["paths"]:
        text = _compile(path, folder)
        compiled.append(text)
        size += len(text or "")
        if size > _MOST_BYTES:
            break
    return compiled


def _compile(path, folder):
    """Returns byte code in base64 that Python believes only while the source is as it is now.

    Instances see the source below `folder`.
    """
    try:
        py_compile.compile(
            str(_PACKAGE / path),
            cfile=str(_SCRATCH),
            dfile=str(folder / path),
            doraise=True,
            quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
        with _SCRATCH.open("rb") as file:
            code = file.read(_MOST_BYTES + 1)
    except Exception:
        return None
    return None if len(code) > _MOST_BYTES else b2a_base64(code, newline=False).decode()
