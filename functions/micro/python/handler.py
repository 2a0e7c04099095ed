"""Runs a microbenchmark of pyperformance, and checks what it came to.

Each file of the folder `members` is one: `run` calls what the package has and returns what that
came to, None where the benchmark throws it away; `check` compares it with a value that is known
otherwise; `prepare`, where there is one, makes what both take. To prepare and to check would be
most of many a request, so that it is done once in an instance's life: later answers are compared
with the one that was found right.
"""

import importlib
import importlib.util
import os
import sys
import time
import types

from uncia_envelope import Choice, Parameter, enveloped

_MODULES = {}
_PREPARED = {}
_CHECKED = {}  # what benchmarks came to that was found right


def load(name):
    """The benchmark of a folder ``bm_NAME`` of pyperformance; once in an instance's life."""
    if name not in _MODULES:
        # All that benchmarks take of pyperf is this, and its import is longer than theirs.
        clock = types.ModuleType("pyperf")
        clock.perf_counter = time.perf_counter
        clock.python_implementation = lambda: sys.implementation.name
        sys.modules.setdefault("pyperf", clock)
        (package,) = importlib.util.find_spec("pyperformance").submodule_search_locations
        folder = os.path.join(package, "data-files", "benchmarks", f"bm_{name}")
        path = os.path.join(folder, "run_benchmark.py")
        spec = importlib.util.spec_from_file_location(f"bm_{name}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # some name themselves
        spec.loader.exec_module(module)
        _MODULES[name] = module
    return _MODULES[name]


MEMBERS = sorted(
    name[:-3]
    for name in os.listdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "members"))
    if name.endswith(".py")
)


@enveloped({"benchmark": Choice("json_loads", MEMBERS), "repeat": Parameter(1, 1, 10_000)})
def handler(benchmark, repeat):
    member = importlib.import_module(f"members.{benchmark}")
    bench = load(getattr(member, "FOLDER", benchmark))
    if benchmark not in _PREPARED:
        _PREPARED[benchmark] = member.prepare(bench) if hasattr(member, "prepare") else None
    prepared = _PREPARED[benchmark]
    result = member.run(bench, repeat, prepared)
    valid = benchmark in _CHECKED and _CHECKED[benchmark] == result
    if not valid:
        valid = bool(member.check(bench, prepared, result))
        if valid:
            _CHECKED[benchmark] = result
    return {"benchmark": benchmark, "repeat": repeat}, valid
