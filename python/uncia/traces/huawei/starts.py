"""Which requests of Huawei's trace of 2025 caused the start of the pod that served them.

Requests and pods are compared by 128 bits of each, because the texts of twelve million cold starts
would fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]

_WORD: Final = 8  # bytes
_SEEDS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


def hashes(texts: pa.StringArray, seed: int) -> Hashes:
    """64 bits of each text, a column at a time; equal texts have equal bits.

    Args:
        texts: without null.
        seed: 0 or 1, for two hashes that are independent of each other.

    Raises:
        ValueError: a text is null.
    """
    if texts.null_count:
        raise ValueError("a null has no hash")
    rows = len(texts)
    if not rows:
        return np.zeros(0, dtype=np.uint64)
    texts = pa.concat_arrays([texts]) if texts.offset else texts
    offsets = np.frombuffer(texts.buffers()[1], np.int32, rows + 1).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8) if texts.buffers()[2] else np.zeros(0, "u1")
    lengths = np.diff(offsets)
    result = np.empty(rows, dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        mine = np.flatnonzero(lengths == length)
        words = max(1, -(-length // _WORD))
        padded = np.zeros((len(mine), words * _WORD), dtype=np.uint8)
        if len(mine) == rows:
            padded[:, :length] = data[offsets[0] : offsets[-1]].reshape(rows, length)
        else:
            padded[:, :length] = data[offsets[mine][:, None] + np.arange(length)]
        state = mixed(np.full(len(mine), _SEEDS[seed] ^ np.uint64(length), dtype=np.uint64))
        for word in padded.view("<u8").T:
            state = mixed(state ^ word)
        result[mine] = state
    return result


def mixed(bits: Hashes) -> Hashes:
    """The finalizer of SplitMix64: every bit changes about half of the others."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIX[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIX[1]
    result: Hashes = bits ^ (bits >> _SHIFTS[2])
    return result


Keys: TypeAlias = tuple[Hashes, Hashes, Hashes, Hashes, Ints]
"""Of cold starts: 128 bits of the request, 128 bits of the pod, and the initialization in ns."""


def keys(region: int, requests: pa.StringArray, pods: pa.StringArray, costs: Ints) -> Keys:
    """What `Starts` keeps of some cold starts, about 40 bytes each.

    Args:
        region: its number.
        requests: that caused them.
        pods: that were started.
        costs: initialization in ns. All arrays have one length and no null.
    """
    return (*_request(region, requests), hashes(pods, 0), hashes(pods, 1), costs)


class Starts:
    """The cold starts by the request that caused them."""

    def __init__(self, keys: Iterable[Keys]) -> None:
        columns = [np.concatenate(column) for column in zip(*keys, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        self._request, self._request_too, self._pod, self._pod_too, self._costs = (
            column[order] for column in columns
        )
        bits = max(10, int(8 * len(order)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._maybe = np.zeros(1 << bits, dtype=bool)
        self._maybe[self._request >> self._shift] = True

    def of(
        self, region: int, requests: pa.StringArray, pods: pa.StringArray
    ) -> tuple[Ints, Ints, int]:
        """The cold starts that requests caused of the pod that served them.

        Args:
            region: its number.
            requests: of the requests; without null.
            pods: that served them, of the same length; null where that is not known.

        Returns:
            Rows, and for each the initialization in ns (of several the longest); and how many
            rows caused cold starts, but of other pods only.
        """
        bits = mixed(hashes(requests, 0) ^ _salt(region))
        rows = np.flatnonzero(self._maybe[bits >> self._shift])
        first = np.searchsorted(self._request, bits[rows], "left")
        many = np.searchsorted(self._request, bits[rows], "right") - first
        rows, first, many = rows[many > 0], first[many > 0], many[many > 0]
        if not len(rows):
            return rows, rows, 0
        chosen = pa.array(rows)
        _, request_too = _request(region, requests.take(chosen))
        mine = pods.take(chosen)
        known = mine.is_valid().to_numpy(zero_copy_only=False).astype(bool)
        pod, pod_too = (hashes(mine.fill_null(""), seed) for seed in (0, 1))
        which = np.repeat(np.arange(len(rows)), many)
        begins = np.repeat(np.cumsum(many) - many, many)
        start = np.repeat(first, many) + np.arange(len(which)) - begins
        caused = self._request_too[start] == request_too[which]
        matches = caused & known[which]
        matches &= (self._pod[start] == pod[which]) & (self._pod_too[start] == pod_too[which])
        costs = np.full(len(rows), -1, dtype=np.int64)
        np.maximum.at(costs, which[matches], self._costs[start[matches]])
        some = np.zeros(len(rows), dtype=bool)
        some[which[caused]] = True
        has_cost = costs >= 0
        return rows[has_cost], costs[has_cost], int((some & ~has_cost).sum())


def _request(region: int, requests: pa.StringArray) -> tuple[Hashes, Hashes]:
    salt = _salt(region)
    return mixed(hashes(requests, 0) ^ salt), mixed(hashes(requests, 1) ^ salt)


def _salt(region: int) -> np.uint64:
    """Tells requests of two regions apart."""
    return np.uint64(region + 1)
