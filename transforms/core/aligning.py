"""What stands in a shard, held against what the index says should stand there.

A record is known by its length and CRC-32C. The least that explains the difference is
reported: one record that is missing moves all behind it, but only one is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from transforms.core.index import IndexRow


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """A frame that was read, or a place where none can be.

    Attributes:
      offset: where it begins, in bytes.
      length: of the data, in bytes.
      crc32c: of the data.
      reason: what is wrong with the frame; '' for a whole one.
    """

    offset: int
    length: int = 0
    crc32c: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Misfit:
    """A place where a shard is not what its index says.

    Attributes:
      offset: in the shard, in bytes.
      key: of the record that stands or should stand there; '' where none is known.
      what: is wrong.
    """

    offset: int
    key: str
    what: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """What `align` found out.

    Attributes:
      good: rows whose records stand whole in their place, in order.
      misfits: sorted by offset.
    """

    good: list[IndexRow]
    misfits: list[Misfit]


def align(expected: Sequence[IndexRow], found: Sequence[FoundFrame]) -> Alignment:
    """Holds the frames of a shard against its index.

    Args:
      expected: the records, by offset.
      found: the frames, by offset.
    """
    matching = _match(expected, found)
    moved = _find_moved(expected, found, matching.pairs)
    misfits = [*_describe_strange(expected, found, matching)]
    for frame, number in matching.pairs:
        row = expected[number]
        if frame in moved:
            what = f"the record stands here, its place is at {row.offset}"
            misfits.append(Misfit(found[frame].offset, row.key, what))
    pairs = [(found[frame], expected[n]) for frame, n in matching.pairs if frame not in moved]
    if not misfits:  # else they explain why what stands behind them has moved
        misfits = [
            Misfit(frame.offset, row.key, f"the index has this record at {row.offset}")
            for frame, row in pairs
            if frame.offset != row.offset
        ]
    good = [row for frame, row in pairs if frame.offset == row.offset]
    return Alignment(good, sorted(misfits))


@dataclass(slots=True)
class _Matching:
    """Which frame is which record.

    Attributes:
      pairs: (number of the frame, number of the record), by frame.
      doubled: frame to the record that it repeats.
      strange: frames that are no record of the index, or broken.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    doubled: dict[int, int] = field(default_factory=dict)
    strange: list[int] = field(default_factory=list)


def _match(expected: Sequence[IndexRow], found: Sequence[FoundFrame]) -> _Matching:
    """Finds the record of each frame; where several are alike, the one at its offset."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, row in enumerate(expected):
        alike[row.length, row.crc32c].append(number)
    candidates = {
        number: alike[frame.length, frame.crc32c]
        for number, frame in enumerate(found)
        if not frame.reason and (frame.length, frame.crc32c) in alike
    }
    at_place = _match_in_place(expected, found, candidates)
    taken = set(at_place.values())
    matching = _Matching(strange=[n for n in range(len(found)) if n not in candidates])
    for number, records in candidates.items():
        record = at_place.get(number)
        if record is None:
            record = next((r for r in records if r not in taken), None)
        if record is None:
            matching.doubled[number] = records[0]
        else:
            taken.add(record)
            matching.pairs.append((number, record))
    return matching


def _match_in_place(
    expected: Sequence[IndexRow],
    found: Sequence[FoundFrame],
    candidates: dict[int, list[int]],
) -> dict[int, int]:
    place = {row.offset: number for number, row in enumerate(expected)}
    return {
        number: place[found[number].offset]
        for number, records in candidates.items()
        if place.get(found[number].offset) in records
    }


def _find_moved(
    expected: Sequence[IndexRow],
    found: Sequence[FoundFrame],
    pairs: Sequence[tuple[int, int]],
) -> Collection[int]:
    """Returns the frames that are out of their place, and not only pushed along by others.

    Of two records that were swapped, both are; in order, one alone would do.
    """
    displaced = {frame for frame, n in pairs if found[frame].offset != expected[n].offset}
    if not displaced:
        return displaced
    kept = longest_rise([number for _, number in pairs])
    out_of_order = {frame for at, (frame, _) in enumerate(pairs) if at not in kept}
    return displaced if len(displaced) <= 2 * len(out_of_order) else out_of_order


def longest_rise(numbers: Sequence[int]) -> set[int]:
    """Returns the positions of a longest increasing subsequence."""
    lowest: list[int] = []  # lowest[k]: the least number that ends a rise of k + 1 numbers
    ends: list[int] = []
    before: list[int] = []
    for position, number in enumerate(numbers):
        k = bisect_left(lowest, number)
        before.append(ends[k - 1] if k else -1)
        lowest[k : k + 1], ends[k : k + 1] = [number], [position]
    kept: set[int] = set()
    position = ends[-1] if ends else -1
    while position >= 0:
        kept.add(position)
        position = before[position]
    return kept


def _describe_strange(
    expected: Sequence[IndexRow], found: Sequence[FoundFrame], matching: _Matching
) -> list[Misfit]:
    """Describes frames that are no record, and records that have no frame."""
    matched = {number for _, number in matching.pairs}
    lacking = {row.offset: row for n, row in enumerate(expected) if n not in matched}
    misfits = [
        Misfit(found[frame].offset, expected[n].key, "the record stands here a second time")
        for frame, n in matching.doubled.items()
    ]
    for number in matching.strange:
        frame = found[number]
        row = lacking.pop(frame.offset, None)
        misfits.append(Misfit(frame.offset, row.key if row else "", _describe(frame, row)))
    missing = [Misfit(row.offset, row.key, "the record is missing") for row in lacking.values()]
    return [*misfits, *missing]


def _describe(frame: FoundFrame, row: IndexRow | None) -> str:
    if frame.reason:
        return frame.reason
    what = f"{frame.length} bytes of crc32c {frame.crc32c:08x} stand here"
    if row is None:
        return f"{what}, which the index knows nothing of"
    return f"{what}, the index has {row.length} bytes of crc32c {row.crc32c:08x}"
