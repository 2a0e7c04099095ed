"""Runs a function's imports once, for all instances that are copies of the process: its zygote.

`bootstrap.py` calls `import_once` in a process that a keeper traces (`init/keeper`). It forks
twice, and each time says so by a signal to itself, and stands still at the fork for good: the
keeper makes the process that goes on. The first fork leads to the zygote, in a sandbox of the
function; the second to an instance, in its own.
"""

import gc
import json
import os
import sys
import traceback

import _signal
from __main__ import _add_layers, _load, _report, _set_environment, _Unusable

_CHUNK = 65536


def import_once(descriptor):
    """Returns the handler, in each instance; copies read their environment from `descriptor`."""
    # Found in a folder that has no code yet.
    sys.path_importer_cache.pop("/var/task", None)
    gc.collect()
    _go_on_as_copy()
    given = _read_environment(descriptor)
    _set_environment(given)
    _add_layers()
    handler = _import(os.environ["_HANDLER"])
    # What never changes stays shared between all copies.
    gc.freeze()
    _go_on_as_copy()
    for name, value in _read_environment(descriptor).items():
        # What the import has set stays.
        if given.get(name) != value:
            os.environ[name] = value
    _renew_randomness()
    _renew_number()
    # What a zygote alone has use for.
    del sys.modules[__name__]
    return handler


def _go_on_as_copy():
    os.kill(os.getpid(), _signal.SIGSTOP)
    if os.fork() != 0:
        # Who is traced never comes here.
        os._exit(1)


def _read_environment(descriptor):
    text = b"".join(iter(lambda: os.read(descriptor, _CHUNK), b""))
    os.close(descriptor)
    return dict(json.loads(text))


def _import(name):
    try:
        return _load(name)
    except BaseException as error:
        kind = error.kind if isinstance(error, _Unusable) else type(error).__name__
        trace = (
            error.trace if isinstance(error, _Unusable) else traceback.format_exc().splitlines(True)
        )
        _report(kind, str(error), trace)
        print("%s: %s" % (kind, str(error).replace("\n", " ")))
        os._exit(1)


def _renew_randomness():
    """Seeds what the import may have seeded, and is not seeded anew after a fork by itself.

    The modules `random` and `ssl` are; generators that the function has made are its own.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        try:
            numpy_random.seed()
            # Normal numbers are made in pairs, and the second is kept when a generator is seeded
            # that is not of NumPy's usual kind.
            state = numpy_random.get_state(legacy=False)
            numpy_random.set_state(dict(state, has_gauss=0, gauss=0.0))
        except Exception:
            # It has another module of that name, or none that is whole.
            pass


def _renew_number():
    """Has the main thread tell its own number, not the one from before the fork."""
    threading = sys.modules.get("threading")
    if threading is not None:
        try:
            threading.main_thread()._set_native_id()
        except Exception:
            # That is Python's own affair, and may be named otherwise.
            pass
