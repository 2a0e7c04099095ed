"""Uncia weighs serverless functions: what they cost in time, in money and in machine."""

from importlib import import_module

from uncia.version import __version__

__all__ = ["__version__", "load", "simulate"]


def __getattr__(name: str) -> object:
    # Loaded on first use, so that `import uncia` stays quick.
    if name == "load":
        from uncia.workload.load import load

        return load
    if name == "simulate":
        # By its name: nothing below it imports it by way of this module.
        return import_module("uncia.experiment.simulate").simulate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
