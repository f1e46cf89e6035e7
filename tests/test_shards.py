"""Names of shards, and how many there are."""

from __future__ import annotations

import pytest

from transforms.core.errors import ConfigError
from transforms.core.shards import (
    MAX_ROWS_PER_SHARD,
    ShardId,
    count_shards,
    format_shard_name,
    index_name,
    parse_shard_name,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("shard", "name"),
    [
        (ShardId("train", 3, 8), "train-00003-of-00008.tfrecord"),
        (ShardId("val", 0, 1), "val-00000-of-00001.tfrecord"),
        (ShardId("a-b_c-00001-of-00002", 1, 2), "a-b_c-00001-of-00002-00001-of-00002.tfrecord"),
        (ShardId("train", 99_998, 99_999), "train-99998-of-99999.tfrecord"),
    ],
)
def test_names_and_back(shard: ShardId, name: str) -> None:
    assert format_shard_name(shard) == name
    assert parse_shard_name(name) == shard


def test_another_template() -> None:
    shard = ShardId("train", 3, 8)
    assert format_shard_name(shard, template="_SS_NNN", suffix=".rec") == "train_03_008.rec"


@pytest.mark.parametrize(
    "name",
    [
        "train.tfrecord",
        "train-00003-of-00008",
        "train-3-of-8.tfrecord",
        "-00003-of-00008.tfrecord",
        "train-00003-of-00008.tfrecord.gz",
        "train-00003-of-00008.tfrecord\n",
        "dataset.json",
        "",
    ],
)
def test_names_that_are_not_ours(name: str) -> None:
    assert parse_shard_name(name) is None


def test_shards_sort_by_split_and_number() -> None:
    shards = [ShardId("val", 0, 2), ShardId("train", 10, 16), ShardId("train", 9, 16)]
    assert sorted(shards) == [shards[2], shards[1], shards[0]]


def test_the_index_stands_in_a_folder_of_its_own() -> None:
    assert index_name("train-00003-of-00008.tfrecord") == "index/train-00003-of-00008.parquet"


@pytest.mark.parametrize(
    ("rows", "sizes", "shard_bytes", "count"),
    [
        (0, [], 256 * MIB, 1),
        (1, [10 * MIB], MIB, 16),  # one row, larger than a shard may be in the mean
        (100, [MIB], 100 * MIB, 1),  # exactly full
        (101, [MIB], 100 * MIB, 2),
        (200, [MIB], 100 * MIB, 2),
        (201, [MIB], 100 * MIB, 4),
        (300, [MIB, 3 * MIB], 100 * MIB, 8),  # the mean of the sample counts
        (1000, [], 1, 1),  # no size is known: one shard
        (MAX_ROWS_PER_SHARD, [1], 256 * MIB, 1),
        (MAX_ROWS_PER_SHARD + 1, [1], 256 * MIB, 2),
        (1_000_000, [], 256 * MIB, 8),
        (7000, [691_322], 256 * MIB, 32),
    ],
)
def test_number_of_shards(rows: int, sizes: list[int], shard_bytes: int, count: int) -> None:
    assert count_shards(rows, sizes, shard_bytes=shard_bytes) == count


def test_it_is_the_smallest_power_of_two_that_will_do() -> None:
    for rows in range(1, 3000, 37):
        for size in (1, 999, 1000, 1001, 54_321):
            count = count_shards(rows, [size], shard_bytes=100_000)
            assert count & (count - 1) == 0
            assert rows * size <= count * 100_000
            assert count == 1 or rows * size > count // 2 * 100_000


def test_more_shards_than_their_names_can_hold() -> None:
    with pytest.raises(ConfigError, match="Give a larger --shard-size"):
        count_shards(1_000_000, [1000], shard_bytes=1000)
