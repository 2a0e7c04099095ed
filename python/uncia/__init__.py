"""Uncia weighs serverless functions: what they cost in time, in money and in machine."""

from uncia.version import __version__

__all__ = ["__version__", "load", "simulate"]


def __getattr__(name: str) -> object:
    # Loaded on first use, so that `import uncia` stays quick.
    if name == "load":
        from uncia.workload.load import load

        return load
    if name == "simulate":
        from uncia.experiment.simulate import simulate

        return simulate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
