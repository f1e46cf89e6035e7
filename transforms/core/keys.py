"""The only hashing: where a row goes follows from its key, never from where it stood.

A row's order is a 128-bit number drawn from its key and the seed; a shard is a range of
orders, so the shards of a split read one after another are the same shuffled sequence
whatever their number is, and doubling the number cuts each shard in two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

ORDER_BITS = 128
SPLIT_BITS = 64
RANK_BITS = 62  # so that a rank, and the bound above all of them, are signed 64-bit numbers


def order_of(key: str, *, seed: int) -> int:
    """Returns the place of a key in the shuffled sequence, in [0, 2**128)."""
    data = b"order\0%d\0" % seed + key.encode("utf-8")
    return int.from_bytes(hashlib.sha256(data).digest()[:16], "big")


def shard_of(order: int, *, num_shards: int) -> int:
    """Returns the shard, in [0, num_shards), that holds an order of `order_of`."""
    return order * num_shards >> ORDER_BITS


def split_of(name: str, fractions: Sequence[tuple[str, Fraction]]) -> str:
    """Returns the split of a key or group.

    It depends on neither seed nor order, so that a row keeps its split for life.

    Args:
      name: the row's group, or its key where it has no group.
      fractions: splits with their shares, which sum to exactly 1.
    """
    digest = hashlib.sha256(b"split\0" + name.encode("utf-8")).digest()
    point = int.from_bytes(digest[:8], "big")
    for split, bound in _split_bounds(tuple(fractions)):
        if point < bound:
            return split
    raise ValueError(f"the shares of {fractions} do not sum to 1")


@lru_cache(maxsize=8)  # exact fractions cost ten times the hash of a key
def _split_bounds(fractions: tuple[tuple[str, Fraction], ...]) -> tuple[tuple[str, int], ...]:
    """Returns for each split the number below which all points of it and of those before lie."""
    total = Fraction(0)
    bounds = []
    for split, share in fractions:
        total += share
        bounds.append((split, ceil(total * 2**SPLIT_BITS)))
    return tuple(bounds)


def verify_rank(key: str, *, seed: int) -> int:
    """Returns the rank of a key among those that may be sampled: the lowest are taken."""
    data = b"verify\0%d\0" % seed + key.encode("utf-8")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 64 - RANK_BITS


def row_digest(*fields: object) -> int:
    """Returns 128 bits that stand for one row, to be summed by `add_digests`."""
    data = b"row\0" + format_canonical(fields).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:16], "big")


def add_digests(digests: Iterable[int]) -> int:
    """Returns the digest of many rows: the same for any order of them, unlike for others.

    A sum, not an exclusive or: with that a row that stands twice would vanish.
    """
    return sum(digests) & ((1 << ORDER_BITS) - 1)


def digest_of(value: object) -> str:
    """Returns the sha256, in hex, of a value's canonical JSON."""
    return hashlib.sha256(format_canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def format_canonical(value: object) -> str:
    """Returns JSON that depends on the value alone: sorted names, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sort_counts(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Returns counts as pairs sorted by name, as frozen dataclasses keep them."""
    return tuple(sorted(counts.items()))
