"""The columns of a pickled pandas DataFrame, from the pickle's data alone.

pandas is not asked: what its pickles of versions 0.24 to 3 hold is taken apart here, and whatever
has another form is an error that says so. See `unpickle`, which calls nothing that a pickle names.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from uncia.traces.unpickle import MAX_BYTES, Built, Global, Items, Kept, Name, Refused, refusing

_NUMPY: Final = ("numpy.core", "numpy._core")
_RECONSTRUCT: Final = frozenset((f"{core}.multiarray", "_reconstruct") for core in _NUMPY)
_FROMBUFFER: Final = frozenset((f"{core}.numeric", "_frombuffer") for core in _NUMPY)
_FRAME: Final = frozenset({("pandas", "DataFrame"), ("pandas.core.frame", "DataFrame")})
_MANAGER: Final = ("pandas.core.internals.managers", "BlockManager")
_BLOCK: Final = frozenset(
    {
        ("pandas._libs.internals", "_unpickle_block"),
        ("pandas.core.internals.blocks", "new_block"),
    }
)
_NEW_INDEX: Final = ("pandas.core.indexes.base", "_new_Index")
_RANGE: Final = frozenset({("pandas", "RangeIndex"), ("pandas.core.indexes.range", "RangeIndex")})
_INDEX: Final = frozenset(
    {
        ("pandas", "Index"),
        ("pandas.core.indexes.base", "Index"),
        ("pandas.core.indexes.numeric", "Int64Index"),
    }
)
_ARROW_TEXT: Final = frozenset(
    {
        ("pandas.arrays", "ArrowStringArray"),
        ("pandas.core.arrays.string_arrow", "ArrowStringArray"),
        ("pandas.core.arrays.string_arrow", "ArrowStringArrayNumpySemantics"),
    }
)
_TEXT: Final = frozenset(
    {
        ("pandas.arrays", "StringArray"),
        ("pandas.core.arrays.string_", "StringArray"),
        ("pandas.core.arrays.string_", "StringArrayNumpySemantics"),
    }
)
_BACKED: Final = ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked")
_STRING_DTYPE: Final = frozenset(
    {("pandas", "StringDtype"), ("pandas.core.arrays.string_", "StringDtype")}
)
_BUILTINS: Final = ("builtins", "__builtin__")  # the latter in protocol 2
_SLICE: Final = frozenset((module, "slice") for module in _BUILTINS)
_RESTORE: Final = ("pyarrow.lib", "_restore_array")
_CHUNKED: Final = ("pyarrow.lib", "chunked_array")
_ALIAS: Final = ("pyarrow.lib", "type_for_alias")
_BUFFER: Final = ("pyarrow.lib", "py_buffer")
_BYTES: Final = frozenset((module, name) for module in _BUILTINS for name in ("bytes", "bytearray"))
_SCALAR: Final = frozenset((f"{core}.multiarray", "scalar") for core in _NUMPY)
_MISSING: Final = frozenset({("pandas", "NA"), ("pandas._libs.missing", "NA")})
_ENCODE: Final = ("_codecs", "encode")

GLOBALS: Final[frozenset[Global]] = frozenset(
    {
        *_RECONSTRUCT,
        *_FROMBUFFER,
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        *_FRAME,
        _MANAGER,
        *_BLOCK,
        _NEW_INDEX,
        *_RANGE,
        *_INDEX,
        *_ARROW_TEXT,
        *_TEXT,
        _BACKED,
        *_STRING_DTYPE,
        *_SLICE,
        *_SCALAR,
        *_MISSING,
        _RESTORE,
        _CHUNKED,
        _ALIAS,
        _BUFFER,
        *_BYTES,
        _ENCODE,
    }
)
"""What a pickled DataFrame of texts, numbers and lists of them names."""

_DTYPE: Final = re.compile(r"f[248]|[iu][1248]|b1|[US][0-9]{1,4}")
_LARGEST: Final = 1 << 32
_MAX_COLUMNS: Final = 10_000
_MAX_DIMENSIONS: Final = 8
_CELL_BYTES: Final = 8
_WIDTHS: Final = {"string": 4, "large_string": 8}
_SURROGATES: Final = 0xD800, 0xDFFF
_LAST_CODE: Final = 0x10FFFF
_STATE: Final = "0.14.1"

Array: TypeAlias = npt.NDArray[Any]
Column: TypeAlias = "list[Any] | Array"


@refusing()
def columns(tree: Any) -> dict[str, Column]:
    """The columns of a DataFrame, by name: an array of numbers, or a list of cells.

    A cell is a plain value, `Items` for a list, or a `Built` array; see :func:`cell`.

    Raises:
        Refused: the pickle holds no DataFrame, or one of another form.
    """
    if not isinstance(tree, Built) or tree.name not in _FRAME or not isinstance(tree.state, dict):
        raise Refused("it holds no DataFrame")
    manager = tree.state.get("_mgr", tree.state.get("_data"))
    if not isinstance(manager, Built) or manager.name != _MANAGER:
        raise Refused("its DataFrame has no blocks")
    blocks, axes = _blocks(manager)
    axis = _sequence(axes)
    names = _names(axis[0]) if axis else []
    columns: dict[int, Column] = {}
    size = 0
    for values, where in blocks:
        rows = _rows(values)
        # Blocks may share their data: a file of little may hold a frame of very much.
        size += sum(map(_size, rows))
        if size > MAX_BYTES:
            raise Refused(f"its DataFrame is of more than {MAX_BYTES:,} bytes")
        columns.update(zip(_positions(where), rows, strict=False))
    if sorted(columns) != list(range(len(names))) or len(set(names)) != len(names):
        raise Refused("the columns and blocks of its DataFrame do not fit together")
    if len({len(column) for column in columns.values()}) > 1:
        raise Refused("the columns of its DataFrame differ in length")
    return {name: columns[position] for position, name in enumerate(names)}


@refusing()
def cell(value: Any) -> Items | Array | None:
    """The list in a cell: as it was, or an array; None if the cell holds no list.

    Raises:
        Refused: it is an array of another form.
    """
    if isinstance(value, Items):
        return value
    if isinstance(value, tuple):
        items = Items()
        items.extend(list(value))
        return items
    if isinstance(value, Built) and value.name in _RECONSTRUCT | _FROMBUFFER:
        array = _array(value)
        if array.ndim != 1:
            raise Refused("it holds a list that is an array of another number of dimensions than 1")
        if array.dtype.kind != "O":
            return array
        items = Items()
        items.extend(array.tolist())
        return items
    return None


@refusing()
def plain(built: Built) -> Any:
    """What is known at once of what a pickle would call: a scalar of numpy is its number."""
    if built.name in _SCALAR and len(built.arguments) == 2:
        kind, data = built.arguments
        dtype = _dtype(kind)
        if (
            dtype.kind != "O"
            and isinstance(raw := _bytes(data), bytes)
            and len(raw) == dtype.itemsize
        ):
            return _flat(raw, dtype)[0].item()
    return built


def _names(value: Any) -> list[str]:
    """The names of columns, which are texts, or numbers where nothing names them."""
    labels = _index(value)
    if len(labels) > _MAX_COLUMNS:
        raise Refused(f"its DataFrame has {len(labels):,} columns")
    if not all(isinstance(label, str | int | float) for label in labels):
        raise Refused("a column of its DataFrame is named by what is no text and no number")
    return [str(label) for label in labels]


def _size(column: Column) -> int:
    """How many bytes a column is, about."""
    if isinstance(column, list):
        return _CELL_BYTES * len(column) + sum(len(it) for it in column if isinstance(it, str))
    return column.nbytes


def _blocks(manager: Built) -> tuple[list[tuple[Any, Any]], Any]:
    """The values of each block with the columns that they are of, and the axes."""
    state = manager.state
    if not manager.arguments and isinstance(state, tuple) and len(state) == 4:
        # Before pandas 1.3: a state, whose last part is named after the version that began so.
        last = state[3].get(_STATE) if isinstance(state[3], dict) else None
        if isinstance(last, dict) and "axes" in last and "blocks" in last:
            blocks = _sequence(last["blocks"])
            if all(isinstance(it, dict) and {"values", "mgr_locs"} <= it.keys() for it in blocks):
                return [(it["values"], it["mgr_locs"]) for it in blocks], last["axes"]
    found, axes = _two(manager.arguments)
    blocks = _sequence(found)
    if not all(isinstance(block, Built) and block.name in _BLOCK for block in blocks):
        raise Refused("its DataFrame has a block of another kind")
    return [_two(block.arguments) for block in blocks], axes


def _two(values: Any) -> tuple[Any, Any]:
    if not isinstance(values, tuple) or len(values) < 2:
        raise Refused("its DataFrame has another form than pandas gives it")
    return values[0], values[1]


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, Items):
        return value.values()
    if isinstance(value, tuple):
        return list(value)
    raise Refused("its DataFrame has another form than pandas gives it")


def _positions(where: Any) -> list[int]:
    """The columns that a block holds."""
    if isinstance(where, Built) and where.name in _SLICE:
        ends = where.arguments
        if len(ends) == 3 and all(isinstance(e, int) and 0 <= e < _MAX_COLUMNS for e in ends):
            return list(range(ends[0], ends[1], ends[2] or 1))
    elif isinstance(where, Built):
        return [int(position) for position in _array(where).ravel()]
    raise Refused("a block of its DataFrame says not which columns it holds")


def _rows(values: Any) -> list[Column]:
    """The columns in the values of a block."""
    if isinstance(values, Built) and values.name in _ARROW_TEXT | _TEXT | {_BACKED}:
        return [_texts(values)]
    array = _array(values)
    if array.ndim != 2 or len(array) > _MAX_COLUMNS:
        raise Refused("a block of its DataFrame is not of two dimensions, columns and rows")
    return [row.tolist() if array.dtype.kind == "O" else row for row in array]


def _index(value: Any) -> list[Any]:
    if not isinstance(value, Built) or value.name != _NEW_INDEX:
        raise Refused("its DataFrame has an index of another kind")
    kind, state = _two(value.arguments)
    if not isinstance(kind, Name) or not isinstance(state, dict):
        raise Refused("its DataFrame has an index of another kind")
    if kind.name in _RANGE:
        ends = [state.get(end) for end in ("start", "stop", "step")]
        start, stop, step = (end if isinstance(end, int) else -1 for end in ends)
        if not (0 <= start < _MAX_COLUMNS and 0 <= stop < _MAX_COLUMNS and step > 0):
            raise Refused("its DataFrame has an index of another kind")
        return list(range(start, stop, step))
    data = state.get("data")
    if isinstance(data, Built) and data.name in _ARROW_TEXT | _TEXT | {_BACKED}:
        return _texts(data)
    labels: list[Any] = _array(data).ravel().tolist()
    return labels


def _array(value: Any) -> Array:
    """The array that numpy would have made."""
    if not isinstance(value, Built):
        raise Refused("its DataFrame has another form than pandas gives it")
    if value.name in _FROMBUFFER and len(value.arguments) == 4:
        data, kind, shape, order = value.arguments
        return _shaped(data, kind, shape, order == "F")
    if value.name in _RECONSTRUCT and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, kind, columnwise, data = value.state
        return _shaped(data, kind, shape, bool(columnwise))
    raise Refused("it holds an array of another form than numpy gives it")


def _shaped(data: Any, kind: Any, shape: Any, columnwise: bool) -> Array:
    dtype = _dtype(kind)
    flat: Array
    if dtype.kind == "O":
        cells = _sequence(data)
        flat = np.empty(len(cells), dtype=object)
        for position, cell in enumerate(cells):
            flat[position] = cell
    else:
        flat = _flat(_bytes(data), dtype)
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MAX_DIMENSIONS
        or not all(isinstance(size, int) and 0 <= size < _LARGEST for size in shape)
    ):
        raise Refused("it holds an array without a shape")
    if int(np.prod(shape, dtype=object)) != len(flat):
        raise Refused("it holds an array whose data does not fit its shape")
    return flat.reshape(shape, order="F" if columnwise else "C")


def _flat(raw: bytes, dtype: np.dtype[Any]) -> Array:
    """The array of one dimension whose data these bytes are."""
    if len(raw) % dtype.itemsize:
        raise Refused("it holds an array whose data is cut off")
    if dtype.kind == "U":
        codes = np.frombuffer(raw, f"{dtype.byteorder}u4")
        low, high = _SURROGATES
        if ((codes > _LAST_CODE) | ((codes >= low) & (codes <= high))).any():
            raise Refused("it holds an array of texts that are none")
    return np.frombuffer(raw, dtype)


def _dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, Built) and value.name == ("numpy", "dtype") and value.arguments:
        text = value.arguments[0]
        order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "|"
        if text in ("O8", "O4", "O"):
            return np.dtype(object)
        if isinstance(text, str) and _DTYPE.fullmatch(text) and order in ("<", ">", "|", "="):
            dtype: np.dtype[Any] = np.dtype(f"{order}{text}")
            if dtype.itemsize:
                return dtype
    raise Refused("it holds an array of another type than numbers, texts and lists")


def _bytes(value: Any) -> bytes:
    """The bytes that the pickle wrapped in one way or another."""
    for _ in range(4):
        if isinstance(value, bytes):
            return value
        if isinstance(value, Kept):
            return value.bytes()
        if isinstance(value, Built) and value.name in _BYTES and not value.arguments:
            return b""
        if not isinstance(value, Built) or not value.arguments:
            break
        if value.name == _ENCODE and isinstance(value.arguments[0], str):  # protocol 2
            if value.arguments[1:] != ("latin1",) or max(value.arguments[0], default="") > "\xff":
                break
            return value.arguments[0].encode("latin-1")
        if value.name != _BUFFER and value.name not in _BYTES:
            break
        value = value.arguments[0]
    raise Refused("it holds an array without data")


def _texts(value: Built) -> list[str | None]:
    """The texts of a string array of pandas, of either storage."""
    if value.name in _ARROW_TEXT and isinstance(value.state, dict):
        data = value.state.get("_pa_array", value.state.get("_data"))
        if isinstance(data, Built) and data.name == _CHUNKED and data.arguments:
            texts: list[str | None] = []
            size = 0
            for chunk in _sequence(data.arguments[0]):
                more = _arrow(chunk)
                # As of blocks: chunks may be the same one.
                size += _size(more)
                if size > MAX_BYTES:
                    raise Refused(f"it holds a column of more than {MAX_BYTES:,} bytes")
                texts += more
            return texts
        return _arrow(data)
    # NDArrayBacked's state: the array is among a few values, in an order that changed.
    parts = value.state if isinstance(value.state, tuple) else ()
    for part in [*parts, *value.arguments]:
        for item in part if isinstance(part, tuple) else [part]:
            if isinstance(item, Built) and item.name in _RECONSTRUCT | _FROMBUFFER:
                cells = _array(item).ravel().tolist()
                return [text if isinstance(text, str) else None for text in cells]
    raise Refused("it holds texts of another form than pandas gives them")


def _arrow(value: Any) -> list[str | None]:
    """The texts of an Arrow array, from its buffers, each held to its bounds."""
    if isinstance(value, Built) and value.name == _RESTORE and len(value.arguments) == 1:
        (data,) = value.arguments
        if isinstance(data, tuple) and len(data) >= 5:
            kind, length, _, offset, buffers = data[:5]
            is_alias = isinstance(kind, Built) and kind.name == _ALIAS and len(kind.arguments) == 1
            alias = kind.arguments[0] if is_alias else None
            width = _WIDTHS.get(alias) if isinstance(alias, str) else None
            parts = _sequence(buffers)
            if (
                width
                and isinstance(length, int)
                and isinstance(offset, int)
                and 0 <= length < _LARGEST
                and 0 <= offset < _LARGEST
                and len(parts) == 3
            ):
                return _decoded(parts, width, length, offset)
    raise Refused("it holds texts of another form than Arrow gives them")


def _decoded(parts: list[Any], width: int, length: int, offset: int) -> list[str | None]:
    if length == 0:
        return []
    raw = _bytes(parts[1])
    whole = len(raw) // width * width
    ends = np.frombuffer(raw[:whole], f"<i{width}")[offset : offset + length + 1].tolist()
    text = b"" if parts[2] is None else _bytes(parts[2])
    if len(ends) != length + 1 or ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(text):
        raise Refused("it holds texts whose data is cut off")
    valid = [True] * length
    if parts[0] is not None:
        bits = np.unpackbits(np.frombuffer(_bytes(parts[0]), np.uint8), bitorder="little")
        valid = bits[offset : offset + length].astype(bool).tolist()
        if len(valid) != length:
            raise Refused("it holds texts whose data is cut off")
    return [
        text[start:end].decode("utf-8", "replace") if there else None
        for start, end, there in zip(ends[:-1], ends[1:], valid, strict=True)
    ]
