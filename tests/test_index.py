"""The index: what is written comes back, and what is damaged is not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms.core.files import Fingerprint
from transforms.core.index import (
    REJECTED,
    WRITTEN,
    IndexFileError,
    IndexRow,
    read_index,
    read_info,
    read_table,
    write_index,
)
from transforms.core.shards import ShardId, ShardInfo

COLUMNS = ("image", "mask")
NAME = "index/train-00001-of-00002.parquet"
INFO = ShardInfo(
    shard=ShardId("train", 1, 2),
    name="train-00001-of-00002.tfrecord",
    records=1,
    size_bytes=5_000_000_000,
    crc32c=0xFFFFFFFF,
    rows=3,
    rejected=(("duplicate_key", 1), ("missing_file", 1)),
    pixel_counts=((0, 5_000_000_000), (255, 1)),
    heights=(2, 2),
    widths=(3, 3),
    digest="ab" * 32,
    rows_digest=2**128 - 1,
)
ROWS = [
    IndexRow(
        key="straße/图 1.jpg",
        paths=("straße/图 1.jpg", "m/1.png"),
        fingerprints=(Fingerprint(10, 1_700_000_000_123_456_789, 0), Fingerprint(2**33, 0, 2**31)),
        status=WRITTEN,
        offset=4_999_999_000,
        length=984,
        crc32c=0xFFFFFFFE,
        height=2,
        width=3,
        pixel_counts=((0, 5), (255, 1)),
    ),
    IndexRow(
        key="b",
        paths=("b", "m"),
        fingerprints=(Fingerprint(1, 2), None),
        status=REJECTED,
        code="missing_file",
        message="m: there is no such file",
        file="m",
    ),
    IndexRow("c", ("c", "m"), (None, None), REJECTED, code="duplicate_key", message="twice"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_index(str(tmp_path), INFO, ROWS, COLUMNS)
    return tmp_path / NAME


def test_rows_and_account_come_back(path: Path) -> None:
    assert read_index(str(path), COLUMNS) == [replace(row, split="train") for row in ROWS]
    assert read_info(str(path)) == INFO


def test_an_empty_index_comes_back(tmp_path: Path) -> None:
    write_index(str(tmp_path), INFO, [], COLUMNS)
    assert read_index(str(tmp_path / NAME), COLUMNS) == []
    assert read_info(str(tmp_path / NAME)) == INFO


def test_whether_a_shard_was_kept_is_not_written(tmp_path: Path, path: Path) -> None:
    fresh = path.read_bytes()
    write_index(str(tmp_path), replace(INFO, reused=True), ROWS, COLUMNS)
    assert path.read_bytes() == fresh


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, path: Path) -> None:
    fresh = path.read_bytes()
    write_index(str(tmp_path), INFO, ROWS, COLUMNS)
    assert path.read_bytes() == fresh


def test_any_parquet_reader_reads_it(path: Path) -> None:
    table = pq.read_table(path)
    assert table.column_names == [
        *("key", "split", "status", "code", "message", "file"),
        *("image", "image_size", "image_mtime_ns", "image_crc32c"),
        *("mask", "mask_size", "mask_mtime_ns", "mask_crc32c"),
        *("offset", "length", "crc32c", "height", "width", "class_ids", "class_pixels"),
    ]
    assert table.to_pylist()[1] == {
        "key": "b",
        "split": "train",
        "status": "rejected",
        "code": "missing_file",
        "message": "m: there is no such file",
        "file": "m",
        "image": "b",
        "image_size": 1,
        "image_mtime_ns": 2,
        "image_crc32c": None,
        "mask": "m",
        "mask_size": None,
        "mask_mtime_ns": None,
        "mask_crc32c": None,
        "offset": -1,
        "length": 0,
        "crc32c": 0,
        "height": 0,
        "width": 0,
        "class_ids": [],
        "class_pixels": [],
    }
    account = json.loads(table.schema.metadata[b"pairshard"])
    assert (account["records"], account["crc32c"]) == (1, 0xFFFFFFFF)


def test_some_columns_can_be_read_alone(path: Path) -> None:
    assert read_table(str(path), ["key"]).to_pydict() == {"key": [row.key for row in ROWS]}


def test_a_missing_index(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none.parquet")
    assert read_info(nowhere) is None
    with pytest.raises(FileNotFoundError):
        read_index(nowhere, COLUMNS)


@pytest.mark.parametrize("tenth", range(10))
def test_an_index_that_is_cut_off(path: Path, tenth: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * tenth // 10])
    with pytest.raises(IndexFileError, match=r"parquet can't be read as an index: "):
        read_index(str(path), COLUMNS)
    with pytest.raises(IndexFileError):
        read_info(str(path))


def test_a_flipped_bit_is_an_error_or_changes_no_key(path: Path) -> None:
    """Of the footer, which Parquet does not check, damage may pass; it never crashes."""
    whole, found = path.read_bytes(), 0
    for at in range(0, len(whole), 3):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        try:
            rows = read_index(str(path), COLUMNS)
            read_info(str(path))
        except IndexFileError:
            found += 1
            continue
        assert [row.key for row in rows] == [row.key for row in ROWS]
    assert found > len(whole) // 3 // 2


def test_another_programs_parquet_is_refused(path: Path) -> None:
    pq.write_table(pa.table({"key": ["a"], "status": ["written"]}), path)
    with pytest.raises(IndexFileError, match="carries no account of a shard"):
        read_table(str(path), ["key"])


def test_an_index_without_its_columns_is_refused(path: Path) -> None:
    with pytest.raises(IndexFileError):
        read_index(str(path), ("image", "depth"))
