"""Huawei's traces: counts and means by minute (2023), and every request of a day (2025)."""

from typing import Final

from uncia.traces.huawei import minutes, requests

TRACES: Final = (minutes, requests)
