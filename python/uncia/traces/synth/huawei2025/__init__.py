"""Synthetic requests and cold starts of Huawei's public cloud, as files or as a table."""

from uncia.traces.synth.huawei2025.files import DESCRIPTION, KIND, make

__all__ = ["DESCRIPTION", "KIND", "make"]
