"""The tables of every measurement: schemas, readers and writers.

``crates/record`` defines the schemas; ``tables.json`` is a copy, written by ``uncia-engine
schema``. A value that was not measured is null, never 0. Times are ``int64`` nanoseconds since the
run's epoch, which is in the schema's metadata.
"""

from uncia.record.files import (
    SUFFIXES,
    check_whole,
    concatenate,
    is_there,
    merge,
    read,
    recover_folder,
    scan,
    write,
    write_stream,
)
from uncia.record.schema import (
    EPOCH_KEY,
    INSTANCE_STARTS,
    OUTCOMES,
    SCHEMA_VERSION,
    TABLES,
    Column,
    columns,
    conform,
    empty,
    epoch_unix_ns,
    schema,
)

__all__ = [
    "EPOCH_KEY",
    "INSTANCE_STARTS",
    "OUTCOMES",
    "SCHEMA_VERSION",
    "SUFFIXES",
    "TABLES",
    "Column",
    "check_whole",
    "columns",
    "concatenate",
    "conform",
    "empty",
    "epoch_unix_ns",
    "is_there",
    "merge",
    "read",
    "recover_folder",
    "scan",
    "schema",
    "write",
    "write_stream",
]
