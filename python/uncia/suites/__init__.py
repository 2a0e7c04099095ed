"""Studies: experiments of the papers, each an experiment file that follows from a few settings."""

from uncia.suites.study import measure

__all__ = ["measure"]
