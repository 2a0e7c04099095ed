"""The tables of a run: the client's rows, joined with the platform's log."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from uncia import record
from uncia.experiment import hops
from uncia.experiment.describe import Description
from uncia.experiment.join import rename
from uncia.experiment.platform_log import PlatformLog
from uncia.runs.folder import RunFolder
from uncia.text import plural


def rows_so_far(folder: RunFolder, log: PlatformLog) -> pa.Table:
    """The client's rows, joined with the platform's log as far as it was fetched."""
    rows = _client_rows(folder)
    if log.invocations:
        rows = hops.assemble(rows, record.merge(log.invocations)).rows
    return rename(rows, log.aliases)


def write(folder: RunFolder, log: PlatformLog, description: Description) -> dict[str, pa.Table]:
    """Write the run's tables from their parts; the parts are deleted once that is done.

    Args:
        folder: of the run.
        log: what the platform has logged.
        description: of the run; learns of warnings.

    Raises:
        UnciaError: a part cannot be read, or a table not be written.
    """
    epoch = description.epoch_unix_ns
    client = record.conform(_client_rows(folder), "invocations", epoch)
    unknown: list[str] = []
    if log.invocations:
        assembled = hops.assemble(client, record.merge(log.invocations))
        client, joined, unknown = assembled.rows, assembled.joined, assembled.unknown
        if unknown:
            description.warnings.append(
                f"functions reported {plural(len(unknown), 'hop')} that the platform did not"
                " log; they are not in the tables"
            )
        if joined.strangers:
            description.warnings.append(
                f"the platform's log holds {joined.strangers} invocations that no client row"
                " asked for; they are not in the tables"
            )
        if joined.accepted:
            description.warnings.append(
                f"accepted and not waited for (HTTP 202): {plural(joined.accepted, 'request')};"
                " the platform's log says how they ended, and they have no latency"
            )
        if joined.repeated:
            description.warnings.append(
                f"the platform's log holds {joined.repeated} rows of invocations it had already"
            )
    spans = record.merge(
        [
            *(record.read(part, "spans") for part in folder.parts("spans")),
            *log.spans,
        ],
        "spans",
    )
    instances = log.instances or record.empty("instances", epoch)
    watched = [record.read(part, "machine") for part in folder.parts("machine")]
    machine = record.merge(watched, "machine")
    tables = {
        "invocations": record.conform(rename(client, log.aliases), "invocations", epoch),
        "spans": hops.without(record.conform(spans, "spans", epoch), unknown),
        "instances": instances,
        "machine": record.conform(with_instances(machine, instances), "machine", epoch),
    }
    for name, rows in tables.items():
        record.write(rows, folder.path / f"{name}.parquet", name)
    folder.drop_parts()
    return tables


def with_instances(machine: pa.Table, instances: pa.Table) -> pa.Table:
    """Say of each row of the machine's table which instance its control group is of.

    In several trees a group may have several paths; their last name is the same, and no other's.
    """
    known = instances.filter(pc.is_valid(instances.column("cgroup")))
    groups = known.column("cgroup").cast(pa.utf8()).combine_chunks()
    name = r"^.*/"
    position = pc.index_in(
        pc.replace_substring_regex(machine.column("cgroup").cast(pa.utf8()), name, ""),
        value_set=pc.replace_substring_regex(groups, name, ""),
        skip_nulls=True,
    )
    names = known.column("instance").cast(pa.utf8()).take(position)
    index = machine.schema.get_field_index("instance")
    return machine.set_column(index, "instance", names)


def _client_rows(folder: RunFolder) -> pa.Table:
    """The rows that the load generator wrote, of all experiments so far."""
    return record.merge([record.read(part, "invocations") for part in folder.parts("invocations")])
