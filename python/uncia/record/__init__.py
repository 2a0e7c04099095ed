"""The tables that every measurement lands in: schemas, readers and writers.

The schemas are fixed in ``crates/record`` and copied to ``tables.json`` beside this file
(``uncia-engine schema``). A value that was not measured is null, never 0. Times are ``int64``
nanoseconds since the run's epoch, which the schema's metadata carries.
"""

from uncia.record.files import merge, read, recover_folder, write
from uncia.record.schema import (
    EPOCH_KEY,
    INSTANCE_STARTS,
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
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "columns",
    "conform",
    "empty",
    "epoch_unix_ns",
    "merge",
    "read",
    "recover_folder",
    "schema",
    "write",
]
