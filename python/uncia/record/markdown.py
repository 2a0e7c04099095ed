"""The generator of the tables' reference page.

Run ``python -m uncia.record.markdown > docs/reference/tables.md``.
"""

from uncia.record.parquet import CHECKSUM_KEY
from uncia.record.schema import EPOCH_KEY, SCHEMA_VERSION, TABLE_KEY, TABLES, VERSION_KEY, columns

_ROWS = {
    "invocations": "One row per attempt to invoke a function.",
    "spans": "A named interval within an invocation or in the life of an instance.",
    "instances": "The life of an instance.",
    "machine": "A counter of the machine, or of a cgroup, at a time.",
    "bill": "What rows of the invocation table cost under a tariff.",
    "arrivals": "Invocations of a function in a minute, from traces that only count them.",
    "profiles": "A statistic of a function's duration or an application's memory, from traces.",
    "functions": "A function of a made trace: what it stands for, and how its user has set it up.",
    "locality": "What a predictor of branches or a cache made of a function, part by part.",
}

_HEAD = f"""# The tables

*Generated from `crates/record`; do not edit. Schema version {SCHEMA_VERSION}.*

Every measurement lands in these tables. A value that was not measured is null, never 0.
Times are nanoseconds since the run's epoch: the Unix time, in ns, under the key
`{EPOCH_KEY}` of the schema's metadata, beside the table's name (`{TABLE_KEY}`) and the schema
version (`{VERSION_KEY}`). In a platform's own log the epoch is 0, so that its times are Unix
times. 1 vCPU is 1,000,000 micro-vCPU.

During a run, a table is an Arrow IPC stream (`*.arrows`), flushed at least every half second; after
a clean close it is Parquet. `uncia recover RUN` converts the streams that a crash left to Parquet;
a stream is deleted only when its Parquet file is on the disk.

Parquet files that Uncia writes carry checksums. Every page has a CRC-32, and the footer holds one
of the whole file under the key `{CHECKSUM_KEY}`, computed with zeros in place of its own digits.
Uncia verifies the file's checksum before it reads a table: one pass over the bytes, about 0.3 s per
GiB and core, once per process. Files of other tools have no such checksum. Where their pages have
checksums, pyarrow and Spark verify those (DuckDB does not); Spark also verifies the pages of files
at an address such as `s3://`.

The two most used differences: **latency** is `received - scheduled`, **generator lag** is
`sent - scheduled`.
"""


def markdown() -> str:
    """Return the page's text: a section for each table, a row for each column."""
    parts = [_HEAD]
    for table in TABLES:
        lines = [
            f"\n## {table}\n",
            f"{_ROWS[table]}\n",
            "| column | type | unit | null | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{c.name}` | `{c.type}` | {c.unit} | {c.null_rule or 'never'} | {c.meaning} |"
            for c in columns(table)
        ]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
