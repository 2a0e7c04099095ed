"""What passed between functions and services, against sums in Python."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from record_rows import table

from uncia.stats import traffic

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.sampled_from("fg"),
            "services": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {
                        "service": st.sampled_from(["store", "documents"]),
                        "sent": st.integers(0, 2**40),
                        "received": st.integers(0, 2**40),
                    }
                ),
                max_size=2,
                unique_by=lambda it: it["service"],
            ),
        }
    ),
    max_size=12,
)


@given(first=ROWS, second=ROWS)
def test_sums_are_by_function_and_service(
    first: list[dict[str, object]], second: list[dict[str, object]]
) -> None:
    def invocations(rows: list[dict[str, object]]) -> pa.Table:
        return table([{"invocation": "i", "attempt": 1, "outcome": "ok", **row} for row in rows])

    rows = [*first, *second]
    parts: dict[tuple[str, str], list[dict[str, int]]] = {}
    for row in rows:
        for it in row["services"] or []:  # type: ignore[attr-defined]
            parts.setdefault((str(row["function"]), it["service"]), []).append(it)
    # In more than one piece, as rows that were read are.
    summary = traffic.summarise(pa.concat_tables([invocations(first), invocations(second)]))
    assert [(row["function"], row["service"]) for row in summary] == sorted(parts)
    for row in summary:
        those = parts[row["function"], row["service"]]
        assert row["invocations"] == len(those)
        for way in ("sent", "received"):
            numbers = [it[way] for it in those]
            assert row[f"{way}_total"] == sum(numbers)
            assert row[f"{way}_max"] == max(numbers)
            assert abs(row[f"{way}_mean"] - sum(numbers) / len(numbers)) <= 1e-9 * max(numbers)


def test_tables_of_earlier_versions_say_nothing() -> None:
    rows = table([{"function": "f", "invocation": "i", "attempt": 1, "outcome": "ok"}])
    assert traffic.summarise(rows) == []
    assert traffic.summarise(rows.drop_columns(["services"])) == []
