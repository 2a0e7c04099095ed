"""The catalogue of functions: finds, checks and packages them, and functions of your own.

A function is a folder: ``function.yaml`` (:class:`Function`) and one folder per runtime with plain
Lambda handlers, which know nothing of Uncia.
"""

from uncia.functions.catalogue import FILE_NAME, list_functions, load
from uncia.functions.form import (
    Answer,
    Checks,
    Function,
    NodeRuntime,
    Parameter,
    PythonRuntime,
    Value,
    check_answer,
    json_schema,
    validate_params,
)
from uncia.functions.lock import lock
from uncia.functions.package import Package, check, package

__all__ = [
    "FILE_NAME",
    "Answer",
    "Checks",
    "Function",
    "NodeRuntime",
    "Package",
    "Parameter",
    "PythonRuntime",
    "Value",
    "check",
    "check_answer",
    "json_schema",
    "list_functions",
    "load",
    "lock",
    "package",
    "validate_params",
]
