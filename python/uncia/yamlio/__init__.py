"""YAML in, with line numbers: every error names file, line and key.

Two functions are all that a reader of a YAML form needs::

    document = load(Path("demo.yaml"))          # text -> plain data, lines remembered
    model = validate(Experiment, document)      # data -> pydantic model, or one UnciaError

The YAML read here is the core schema of YAML 1.2, not PyYAML's 1.1: ``no``, ``on``, ``1:30``
and ``2025-05-15`` stay text, ``1e-5`` is a number. Keys are text and occur once; tags, merge
keys and several documents in one file are refused.
"""

from uncia.yamlio.document import (
    MAX_DEPTH,
    MAX_NODES,
    NOT_IN_YAML,
    Document,
    KeyPath,
    dump,
    format_path,
    load,
)
from uncia.yamlio.validation import validate

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "NOT_IN_YAML",
    "Document",
    "KeyPath",
    "dump",
    "format_path",
    "load",
    "validate",
]
