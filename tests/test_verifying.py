"""Shards that are damaged in every way: what is said of each, and where."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from transforms.core import keys
from transforms.core.aligning import Misfit
from transforms.core.index import REJECTED, WRITTEN, IndexRow, write_index
from transforms.core.placing import check_places
from transforms.core.shards import IndexSums, ShardId, ShardInfo
from transforms.core.verifying import (
    RANKS,
    Failure,
    Findings,
    ShardCheck,
    check_shard,
    is_sampled,
)

NAME = "train-00000-of-00001.tfrecord"
INDEX = "index/train-00000-of-00001.parquet"
RECORDS = {"a": b"A" * 20, "b": b"B" * 30, "c": b"C" * 20, "d": b"D" * 20, "e": b"E" * 40}
PIXELS = {"a": ((0, 15), (7, 5)), "b": ((0, 5), (7, 25))}
OFFSETS = {"a": 0, "b": 36, "c": 82, "d": 118, "e": 154}
SIZE = 210
SEED = 304
"""One with which a, b, x, c, d, e are in order."""


def frame(data: bytes) -> bytes:
    """A TFRecord frame, written out once more."""

    def masked(part: bytes) -> bytes:
        crc = google_crc32c.value(part)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def frames(names: Sequence[str]) -> bytes:
    return b"".join(frame(RECORDS[name]) for name in names)


def index_rows() -> list[IndexRow]:
    """One row per record, and a rejected row that none may be expected of."""
    rows = [
        IndexRow(
            key,
            (f"{key}.jpg", f"{key}.png"),
            (None, None),
            WRITTEN,
            offset=OFFSETS[key],
            length=len(data),
            crc32c=google_crc32c.value(data),
            pixel_counts=PIXELS.get(key, ()),
            split="train",
        )
        for key, data in RECORDS.items()
    ]
    paths = ("x.jpg", "x.png")
    lost = IndexRow("x", paths, (None, None), REJECTED, code="missing_file", split="train")
    return [*rows[:2], lost, *rows[2:]]


def make_info(rows: Sequence[IndexRow], data: bytes) -> ShardInfo:
    return ShardInfo(
        shard=ShardId("train", 0, 1),
        name=NAME,
        records=sum(row.status == WRITTEN for row in rows),
        size_bytes=len(data),
        crc32c=google_crc32c.value(data),
        rows=len(rows),
        rejected=tuple(sorted(Counter(row.code for row in rows if row.code).items())),
        pixel_counts=((0, 20), (7, 30)) if len(rows) > 4 else (),
        heights=(0, 0),
        widths=(0, 0),
        digest="",
        rows_digest=0,
    )


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """The file of a shard of the five records, with its index."""
    data = frames("abcde")
    path = tmp_path / NAME
    path.write_bytes(data)
    rows = index_rows()
    write_index(str(tmp_path), make_info(rows, data), rows, ("image", "mask"))
    return path


CHECK = ShardCheck(NAME, 5, SIZE, google_crc32c.value(frames("abcde")), SEED)


def check(shard: Path) -> tuple[list[str], list[tuple[int, str, str]]]:
    """(keys of the good records, (offset, key, what) of the failures)."""
    found = check_shard(str(shard.parent), CHECK)
    good, failures = found.good, found.failures
    assert all(failure.shard == NAME and not failure.source_changed for failure in failures)
    return [row.key for row in good], [(f.offset, f.key, f.what) for f in failures]


def test_a_whole_shard_has_no_failure(shard: Path) -> None:
    read: list[str] = []
    found = check_shard(str(shard.parent), CHECK, read.append)
    assert ([row.key for row in found.good], found.failures) == (list("abcde"), [])
    assert found.sums == IndexSums((("missing_file", 1),), ((0, 20), (7, 30)))
    assert read == list("abcde")


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0, "the CRC of the length is wrong"),
        (7, "the CRC of the length is wrong"),
        (8, "the CRC of the length is wrong"),
        (11, "the CRC of the length is wrong"),
        (12, "the CRC of the data (30 bytes) is wrong"),
        (41, "the CRC of the data (30 bytes) is wrong"),
        (42, "the CRC of the data (30 bytes) is wrong"),
        (45, "the CRC of the data (30 bytes) is wrong"),
    ],
)
def test_a_flipped_bit_is_found_in_its_frame(shard: Path, at: int, reason: str) -> None:
    data = bytearray(shard.read_bytes())
    data[OFFSETS["b"] + at] ^= 0x10
    shard.write_bytes(data)
    assert check(shard) == (list("acde"), [(36, "b", reason)])


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_found(shard: Path, bit: int) -> None:
    whole = shard.read_bytes()
    for at in range(SIZE):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        shard.write_bytes(data)
        key = max((offset, key) for key, offset in OFFSETS.items() if offset <= at)[1]
        good, failures = check(shard)
        assert good == [other for other in "abcde" if other != key]
        assert [failure[:2] for failure in failures] == [(OFFSETS[key], key)]


CUT = "the file has {} bytes; 210 were written"


@pytest.mark.parametrize(
    ("size", "good", "failures"),
    [
        (
            209,
            "abcd",
            [(154, "e", "cut off: 40 bytes of data were expected, the file ends at 209")],
        ),
        (
            166,
            "abcd",
            [(154, "e", "cut off: 40 bytes of data were expected, the file ends at 166")],
        ),
        (160, "abcd", [(154, "e", "cut off: 6 bytes where a header of 12 was expected")]),
        (
            154,
            "abcd",
            [
                (-1, "", "the file has 4 records; 5 were written"),
                (154, "e", "the record is missing"),
            ],
        ),
        (
            50,
            "a",
            [
                (-1, "", "the file has 2 records; 5 were written"),
                (36, "b", "cut off: 30 bytes of data were expected, the file ends at 50"),
                (82, "c", "the record is missing"),
                (118, "d", "the record is missing"),
                (154, "e", "the record is missing"),
            ],
        ),
        (
            0,
            "",
            [
                (-1, "", "the file has 0 records; 5 were written"),
                *((OFFSETS[key], key, "the record is missing") for key in "abcde"),
            ],
        ),
    ],
)
def test_a_shard_that_is_cut_off(
    shard: Path, size: int, good: str, failures: list[tuple[int, str, str]]
) -> None:
    shard.write_bytes(shard.read_bytes()[:size])
    said = sorted([(-1, "", CUT.format(size)), *failures])
    assert check(shard) == (list(good), said)


@pytest.mark.parametrize("key", list("abcde"))
def test_a_missing_record_is_named_and_nothing_else(shard: Path, key: str) -> None:
    shard.write_bytes(frames([other for other in "abcde" if other != key]))
    size = SIZE - len(frame(RECORDS[key]))
    _, failures = check(shard)
    assert failures == [
        (-1, "", CUT.format(size)),
        (-1, "", "the file has 4 records; 5 were written"),
        (OFFSETS[key], key, "the record is missing"),
    ]


def test_two_records_that_were_swapped_are_both_named(shard: Path) -> None:
    shard.write_bytes(frames("abdce"))
    assert check(shard) == (
        list("abe"),
        [
            (82, "d", "the record stands here, its place is at 118"),
            (118, "c", "the record stands here, its place is at 82"),
        ],
    )


def test_two_swapped_records_of_different_lengths(shard: Path) -> None:
    shard.write_bytes(frames("bacde"))
    assert check(shard) == (
        list("cde"),
        [
            (0, "b", "the record stands here, its place is at 36"),
            (46, "a", "the record stands here, its place is at 0"),
        ],
    )


def test_two_records_swapped_far_apart(shard: Path) -> None:
    shard.write_bytes(frames("abecd")[:82] + frames("ecd"))
    good, failures = check(shard)
    assert good == list("ab")
    assert failures == [(82, "e", "the record stands here, its place is at 154")]


def test_a_doubled_record(shard: Path) -> None:
    shard.write_bytes(frames("abbcde"))
    assert check(shard)[1] == [
        (-1, "", CUT.format(256)),
        (-1, "", "the file has 6 records; 5 were written"),
        (82, "b", "the record stands here a second time"),
    ]


def test_a_record_in_place_of_another(shard: Path) -> None:
    shard.write_bytes(frames("abcce"))
    assert check(shard)[1] == [
        (118, "c", "the record stands here a second time"),
        (118, "d", "the record is missing"),
    ]


def test_a_foreign_record_with_right_crcs(shard: Path) -> None:
    foreign = b"?" * 20
    shard.write_bytes(frames("ab") + frame(foreign) + frames("de"))
    found, known = google_crc32c.value(foreign), google_crc32c.value(RECORDS["c"])
    what = (
        f"20 bytes of crc32c {found:08x} stand here, the index has 20 bytes of crc32c {known:08x}"
    )
    assert check(shard) == (list("abde"), [(82, "c", what)])


def test_a_foreign_record_of_another_length(shard: Path) -> None:
    shard.write_bytes(frames("ab") + frame(b"?" * 25) + frames("de"))
    _, failures = check(shard)
    assert [(offset, key) for offset, key, _ in failures] == [(-1, ""), (82, "c")]


def test_a_foreign_record_more(shard: Path) -> None:
    shard.write_bytes(frames("abcde") + frame(b"?"))
    found = google_crc32c.value(b"?")
    assert check(shard) == (
        list("abcde"),
        [
            (-1, "", CUT.format(227)),
            (-1, "", "the file has 6 records; 5 were written"),
            (
                210,
                "",
                f"1 bytes of crc32c {found:08x} stand here, which the index knows nothing of",
            ),
        ],
    )


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\0" * 100, "the CRC of the length is wrong"),
        (b"garbage", "cut off: 7 bytes where a header of 12 was expected"),
        (b"\xff" * 5000, "the CRC of the length is wrong"),
    ],
)
def test_appended_garbage(shard: Path, garbage: bytes, reason: str) -> None:
    shard.write_bytes(frames("abcde") + garbage)
    good, failures = check(shard)
    assert good == list("abcde")
    assert failures == [
        (-1, "", CUT.format(210 + len(garbage))),
        (-1, "", "the file has 6 records; 5 were written"),
        (210, "", reason),
    ]


def test_two_damages_in_one_shard(shard: Path) -> None:
    data = bytearray(frames("abcde"))
    data[OFFSETS["a"]] ^= 1
    data[OFFSETS["d"] + 14] ^= 1
    shard.write_bytes(data)
    assert check(shard) == (
        list("bce"),
        [
            (0, "a", "the CRC of the length is wrong"),
            (118, "d", "the CRC of the data (20 bytes) is wrong"),
        ],
    )


def test_a_missing_shard(shard: Path) -> None:
    shard.unlink()
    assert check(shard) == ([], [(-1, "", f"{NAME} is missing")])


def test_a_missing_index_does_not_hide_damage(shard: Path) -> None:
    (shard.parent / INDEX).unlink()
    assert check(shard) == ([], [(-1, "", f"{INDEX} is missing")])
    data = bytearray(shard.read_bytes())
    data[60] ^= 1
    shard.write_bytes(data)
    assert check(shard)[1] == [
        (-1, "", f"{INDEX} is missing"),
        (36, "", "the CRC of the data (30 bytes) is wrong"),
    ]


def test_a_damaged_index(shard: Path) -> None:
    path = shard.parent / INDEX
    path.write_bytes(path.read_bytes()[:-9])
    good, ((offset, key, what),) = check(shard)
    assert (good, offset, key) == ([], -1, "")
    assert what.startswith(f"{INDEX} can't be read as an index: ")


def test_an_index_of_another_build(shard: Path) -> None:
    rows = [row for row in index_rows() if row.key != "e"]
    info = replace(make_info(rows, frames("abcd")), rows=9)
    write_index(str(shard.parent), info, rows, ("image", "mask"))
    found, crc = google_crc32c.value(frames("abcd")), CHECK.crc32c
    last = google_crc32c.value(RECORDS["e"])
    assert check(shard)[1] == [
        (-1, "", "the index has 4 records; 5 were written"),
        (-1, "", "the index has 5 rows; 9 were written into it"),
        (
            -1,
            "",
            f"the index is of a file of 154 bytes and crc32c {found:08x}; 210 bytes and "
            f"{crc:08x} were written",
        ),
        (
            154,
            "",
            f"40 bytes of crc32c {last:08x} stand here, which the index knows nothing of",
        ),
    ]


def test_an_index_with_wrong_offsets(shard: Path) -> None:
    rows = [replace(row, offset=row.offset + 1) if row.key == "e" else row for row in index_rows()]
    write_index(str(shard.parent), make_info(rows, frames("abcde")), rows, ("image", "mask"))
    assert check(shard) == (list("abcd"), [(154, "e", "the index has this record at 155")])


def test_another_crc_in_the_account(shard: Path) -> None:
    failures = check_shard(str(shard.parent), replace(CHECK, crc32c=0x1234)).failures
    crc = f"{CHECK.crc32c:08x}"
    assert [failure.what for failure in failures] == [
        f"the file's crc32c is {crc}; 00001234 was written",
        f"the index is of a file of 210 bytes and crc32c {crc}; 210 bytes and 00001234 were "
        "written",
    ]


def test_an_empty_shard(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"")
    write_index(str(tmp_path), make_info([], b""), [], ("image", "mask"))
    empty = ShardCheck(NAME, 0, 0, 0, SEED)
    assert check_shard(str(tmp_path), empty) == Findings([], [], IndexSums((), ()))
    (tmp_path / NAME).write_bytes(frames("a"))
    assert len(check_shard(str(tmp_path), empty).failures) == 3


def test_records_with_the_same_bytes(tmp_path: Path) -> None:
    """Two keys of one picture: neither order nor place can tell them apart, but number can."""
    rows = [
        IndexRow(key, ("i", "m"), (None, None), WRITTEN, offset=n * 17, length=1, crc32c=crc)
        for n, (key, crc) in enumerate([("one", google_crc32c.value(b"="))] * 2)
    ]
    rows = [replace(rows[0], key="a", split="train"), replace(rows[1], key="b", split="train")]
    data = frame(b"=") * 2
    (tmp_path / NAME).write_bytes(data)
    write_index(str(tmp_path), make_info(rows, data), rows, ("image", "mask"))
    whole = ShardCheck(NAME, 2, 34, google_crc32c.value(data), SEED)
    assert check_shard(str(tmp_path), whole) == Findings(rows, [], IndexSums((), ()))
    (tmp_path / NAME).write_bytes(data[:17])
    assert check_shard(str(tmp_path), whole).failures == [
        Failure(NAME, -1, "", "the file has 1 records; 2 were written"),
        Failure(NAME, -1, "", "the file has 17 bytes; 34 were written"),
        Failure(NAME, 17, "b", "the record is missing"),
    ]


def check_index(shard: Path, rows: Sequence[IndexRow]) -> list[tuple[int, str, str]]:
    """The failures of the whole shard when its index has other rows."""
    info = make_info(index_rows(), frames("abcde"))
    write_index(str(shard.parent), info, rows, ("image", "mask"))
    return check(shard)[1]


ELSEWHERE = "by its key and seed 304 it belongs elsewhere in the shard's order"


@pytest.mark.parametrize("swapped", ["ab", "ac", "ae", "de", "bx", "xd"])
def test_two_keys_swapped_in_the_index_are_both_named(shard: Path, swapped: str) -> None:
    other = dict(zip(swapped, reversed(swapped), strict=True))
    rows = [replace(row, key=other.get(row.key, row.key)) for row in index_rows()]
    failures = [(row.offset, row.key, ELSEWHERE) for row in rows if row.key in other]
    assert check_index(shard, rows) == sorted(failures)


def test_one_row_that_was_moved_is_named_alone(shard: Path) -> None:
    lost = index_rows()[2]
    rows = [row for row in index_rows() if row != lost]
    assert check_index(shard, [*rows, lost]) == [(-1, "x", ELSEWHERE)]


def test_index_rows_that_do_not_follow_the_offsets(shard: Path) -> None:
    rows = index_rows()
    rows[4], rows[3] = rows[3], rows[4]
    assert check_index(shard, rows) == [
        (82, "c", ELSEWHERE),
        (82, "c", "the index has it behind a record at 118"),
        (118, "d", ELSEWHERE),
    ]


def test_a_seed_that_is_another_one(shard: Path) -> None:
    failures = check_shard(str(shard.parent), replace(CHECK, seed=0)).failures
    assert {failure.what for failure in failures} == {ELSEWHERE.replace("304", "0")}


def test_a_key_that_is_another_one_is_named_alone(shard: Path) -> None:
    rows = index_rows()
    rows[0] = replace(rows[0], key="another")
    assert keys.order_of("another", seed=SEED) > keys.order_of("b", seed=SEED)
    assert check_index(shard, rows) == [(0, "another", ELSEWHERE)]


def test_rows_of_another_shard() -> None:
    shard_id = ShardId("train", 0, 2)
    found = check_places(index_rows(), shard_id, seed=SEED)
    rows = {row.key: row for row in index_rows()}
    high = [key for key in "abxcde" if keys.order_of(key, seed=SEED) >= 2**127]
    assert 0 < len(high) < 6
    what = "by its key and seed 304 it belongs in shard 1 of 2"
    assert found == sorted(Misfit(rows[key].offset, key, what) for key in high)


@pytest.mark.parametrize("at", [1, 2])
def test_a_row_of_another_split(at: int) -> None:
    rows = index_rows()
    rows[at] = replace(rows[at], split="val")
    what = "the index has it in split 'val', the shard is of 'train'"
    found = check_places(rows, ShardId("train", 0, 1), seed=SEED)
    assert found == [Misfit(rows[at].offset, rows[at].key, what)]


def test_duplicates_stand_behind_the_row_that_was_kept() -> None:
    rows = index_rows()
    place = ShardId("train", 0, 1)
    copy = replace(rows[2], key="b", code="duplicate_key")
    assert check_places([*rows[:2], copy, copy, *rows[2:]], place, seed=SEED) == []
    before = check_places([rows[0], copy, *rows[1:]], place, seed=SEED)
    assert before == [
        Misfit(-1, "b", "a duplicate, and no row of its key stands before it"),
        Misfit(36, "b", "the key stands here again, not as a duplicate"),
    ]
    kept = replace(copy, code="missing_file")
    assert check_places([*rows[:2], kept, *rows[2:]], place, seed=SEED) == [
        Misfit(-1, "b", "the key stands here again, not as a duplicate")
    ]


def test_an_index_whose_sums_are_others_than_were_written(shard: Path) -> None:
    what = "the index's rows have other rejects or pixels than were written into it"
    for at, change in ((0, {"pixel_counts": ((0, 20),)}), (2, {"code": "truncated"})):
        rows = index_rows()
        rows[at] = replace(rows[at], **change)
        assert check_index(shard, rows) == [(-1, "", what)]


def test_nothing_is_written(shard: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in [shard.parent, *shard.parent.rglob("*")]}
    check(shard)
    assert {p: p.stat().st_mtime_ns for p in [shard.parent, *shard.parent.rglob("*")]} == before


def test_the_sample_is_the_lowest_ranks() -> None:
    names = [f"images/{number}.jpg" for number in range(1000)]
    ranks = sorted(keys.verify_rank(name, seed=7) for name in names)
    chosen = [name for name in names if is_sampled(name, seed=7, threshold=ranks[100])]
    lowest = heapq.nsmallest(100, names, key=lambda name: keys.verify_rank(name, seed=7))
    assert sorted(chosen) == sorted(lowest)
    assert all(is_sampled(name, seed=7, threshold=RANKS) for name in names)
    assert not any(is_sampled(name, seed=7, threshold=0) for name in names)


def test_ranks_are_those_of_the_design() -> None:
    # sha256(b"verify\0" + seed + b"\0" + key), the first 62 bits
    assert keys.verify_rank("images/1.jpg", seed=0) == 0x2776A722EBE6ED5A
