"""Studies, each an experiment file that follows from settings; and suites, papers as data.

A module such as `background` is a study of ``uncia cpu``. A folder with a ``suite.yaml`` is a suite
of ``uncia suite``; the modules `catalogue`, `perform` and `results` read, carry out and judge it.
"""

from uncia.suites.study import measure

__all__ = ["measure"]
