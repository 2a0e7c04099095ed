"""Charts are checked here."""

from chart_check import charts_are_valid

__all__ = ["charts_are_valid"]
