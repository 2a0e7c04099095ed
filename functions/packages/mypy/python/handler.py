"""Answers at once; what its package holds is imported if the variable IMPORT is set."""

import importlib
import os

from uncia_envelope import enveloped

MODULES = ("mypy.build",)
imported = bool(os.environ.get("IMPORT"))
if imported:
    for name in MODULES:
        importlib.import_module(name)


@enveloped({})
def handler():
    return {"imported": imported}, True
