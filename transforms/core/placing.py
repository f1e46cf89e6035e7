"""Where a row has to stand, by its key, held against where its index has it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from transforms.core import keys
from transforms.core.aligning import Misfit, longest_rise
from transforms.core.index import WRITTEN, IndexRow
from transforms.core.shards import ShardId


def check_places(rows: Sequence[IndexRow], shard: ShardId, *, seed: int) -> list[Misfit]:
    """Finds rows, records and rejects, that don't belong where they are.

    A shard holds the rows of its split whose orders fall into its range, by order; of those
    that share a key, one is kept and stands before its duplicates.

    Args:
      rows: of the shard's index, as they stand there.
      shard: as its file's name says.
      seed: of the order.
    """
    orders = [keys.order_of(row.key, seed=seed) for row in rows]
    misplaced = _find_misplaced(orders)
    misfits = [*_check_copies(rows), *_check_offsets(rows)]
    for at, (row, order) in enumerate(zip(rows, orders, strict=True)):
        whats = _judge(row, order, shard, seed, misplaced=at in misplaced)
        misfits += [Misfit(row.offset, row.key, what) for what in whats]
    return sorted(misfits)


def _judge(
    row: IndexRow, order: int, shard: ShardId, seed: int, *, misplaced: bool
) -> Iterator[str]:
    if row.split != shard.split:
        yield f"the index has it in split {row.split!r}, the shard is of {shard.split!r}"
    number = keys.shard_of(order, num_shards=shard.num_shards)
    if number != shard.index:
        yield f"by its key and seed {seed} it belongs in shard {number} of {shard.num_shards}"
    elif misplaced:
        yield f"by its key and seed {seed} it belongs elsewhere in the shard's order"


def _find_misplaced(orders: Sequence[int]) -> Collection[int]:
    """Returns the positions that keep the orders from rising.

    Of two rows that were swapped, both do; of one that was moved, not all that it passed.
    """
    places = [(order << 64) + at for at, order in enumerate(orders)]  # a key's rows are equal
    displaced = {at for at, place in enumerate(sorted(places)) if place != places[at]}
    if not displaced:
        return displaced
    out_of_order = set(range(len(places))) - longest_rise(places)
    return displaced if len(displaced) <= 2 * len(out_of_order) else out_of_order


def _check_copies(rows: Sequence[IndexRow]) -> Iterator[Misfit]:
    seen: set[str] = set()
    for row in rows:
        if row.key in seen and row.code != "duplicate_key":
            yield Misfit(row.offset, row.key, "the key stands here again, not as a duplicate")
        elif row.key not in seen and row.code == "duplicate_key":
            yield Misfit(row.offset, row.key, "a duplicate, and no row of its key stands before it")
        seen.add(row.key)


def _check_offsets(rows: Sequence[IndexRow]) -> Iterator[Misfit]:
    end = 0
    for row in rows:
        if row.status == WRITTEN and row.offset < end:
            yield Misfit(row.offset, row.key, f"the index has it behind a record at {end}")
        elif row.status == WRITTEN:
            end = row.offset
