"""The same input gives the same bytes, and the key alone says where a row goes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
from fractions import Fraction
from pathlib import Path

import data_sets
import pytest
from conftest import Run

from transforms.core import keys
from transforms.core.rows import Row
from transforms.core.settings import ShardSettings
from transforms.core.sizing import shard_of_row, split_of_row

OPTIONS = ("--split", "train=0.75,val=0.25", "--num-shards", "train=4,val=2", "--max-rejects", 9)


@pytest.fixture(scope="module")
def mixed(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`drawn` with a manifest that has rejects of several kinds among its rows."""
    folder = Path(shutil.copytree(drawn, tmp_path_factory.mktemp("mixed") / "sources"))
    (folder / "masks" / "000003.png").write_bytes(b"no picture")
    rows = [[image, mask, image] for image, mask, _ in data_sets.read_rows(folder / "pairs.csv")]
    rows += [["images/none.jpg", "masks/000000.png", "none"]]
    rows += [["../x.jpg", "masks/000000.png", "outside"]]
    rows += [[rows[5][0], rows[6][1], rows[5][0]], [rows[7][0], rows[7][1], rows[7][0]]]
    data_sets.write_csv(folder / "mixed.csv", rows, "image,mask,key")
    return folder


@pytest.fixture(scope="module")
def expected(mixed: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set that every other way of building `mixed` must make as well."""
    output = tmp_path_factory.mktemp("expected") / "set"
    ran = build(mixed / "mixed.csv", output, *OPTIONS, "--threads", 2)
    assert ran.status == 0, ran.err
    assert data_sets.read_json(output, "dataset.json")["rows"]["rejected"] == {
        "duplicate_key": 2,
        "missing_file": 1,
        "not_an_image": 1,
        "path_outside_root": 1,
    }
    return output


def shuffled(mixed: Path, seed: int = 5) -> list[list[str]]:
    rows = data_sets.read_rows(mixed / "mixed.csv")
    random.Random(seed).shuffle(rows)
    return rows


def write_shuffled(mixed: Path, folder: Path) -> list[Path]:
    head = "image,mask,key"
    return [data_sets.write_csv(folder / "shuffled.csv", shuffled(mixed), head)]


def write_several(mixed: Path, folder: Path) -> list[Path]:
    rows = shuffled(mixed)
    parts = {"z.csv": rows[:3], "a.csv": rows[3:20], "m.csv": rows[20:]}
    return [data_sets.write_csv(folder / n, part, "image,mask,key") for n, part in parts.items()]


def write_jsonl(mixed: Path, folder: Path) -> list[Path]:
    lines = [
        json.dumps({"mask": mask, "key": key, "image": image}) + "\r\n"
        for image, mask, key in shuffled(mixed, seed=6)
    ]
    path = folder / "rows.jsonl.gz"
    path.write_bytes(gzip.compress("".join(lines).encode("utf-8-sig")))
    return [path]


def write_other_columns(mixed: Path, folder: Path) -> list[Path]:
    rows = [[key, f"./masks/..//{mask}", f"./{image}"] for image, mask, key in shuffled(mixed)]
    return [data_sets.write_csv(folder / "other.csv", rows, "key,mask,image")]


@pytest.mark.parametrize("write", [write_shuffled, write_several, write_jsonl, write_other_columns])
def test_how_the_rows_are_written_down_does_not_matter(
    write, mixed: Path, expected: Path, build: Run, tmp_path: Path
):
    manifests = write(mixed, tmp_path)
    output = tmp_path / "set"
    assert build(manifests, output, *OPTIONS, "--source-root", mixed).status == 0
    assert data_sets.differing(output, expected) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--threads", 1),
        ("--threads", 7),
        ("--workers", 2, "--threads", 2),
        ("--max-rejects", "50%", "--quiet"),
    ],
    ids=["one thread", "seven threads", "two workers", "another gate"],
)
def test_how_it_is_run_does_not_matter(
    options, mixed: Path, expected: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    ran = build(mixed / "mixed.csv", output, *OPTIONS, *options)
    assert ran.status == 0, ran.err
    assert data_sets.differing(output, expected) == []


def test_a_bundle_that_is_run_twice_does_not_matter(
    mixed: Path, expected: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    beams = ("--", "--direct_runner_bundle_repeat=1")
    assert build(mixed / "mixed.csv", output, *OPTIONS, *beams).status == 0
    assert data_sets.differing(output, expected) == []
    # The second time, each shard was there already: it did run twice.
    assert data_sets.read_json(output, "run.json")["shards"] == {"built": 0, "reused": 6}


def test_another_hash_seed_and_another_process_do_not_matter(
    mixed: Path, expected: Path, run_apart: Run, tmp_path: Path
):
    output = tmp_path / "set"
    given = ("build", mixed / "mixed.csv", "--output", output, "--verify", "none", *OPTIONS)
    assert run_apart(*given, PYTHONHASHSEED="4711", LC_ALL="C").status == 0
    assert data_sets.differing(output, expected) == []


def test_where_the_sources_stand_does_not_matter(
    mixed: Path, expected: Path, build: Run, tmp_path: Path
):
    moved = shutil.copytree(mixed, tmp_path / "moved" / "elsewhere")
    output = tmp_path / "set"
    assert build(moved / "mixed.csv", output, *OPTIONS).status == 0
    assert data_sets.differing(output, expected) == []


def test_of_the_times_of_change_only_the_index_tells(
    mixed: Path, expected: Path, build: Run, tmp_path: Path
):
    copied = shutil.copytree(mixed, tmp_path / "copied")
    for path in copied.rglob("*.*"):
        os.utime(path, ns=(1, 1_500_000_000_000_000_001))
    output = tmp_path / "set"
    assert build(copied / "mixed.csv", output, *OPTIONS).status == 0
    assert {name.split("/")[0] for name in data_sets.differing(output, expected)} == {"index"}
    found, wanted = (data_sets.read_all_indexes(folder) for folder in (output, expected))
    assert {row["image_mtime_ns"] for row in found} == {None, 1_500_000_000_000_000_001}
    for row in found + wanted:
        for name in data_sets.MTIMES:
            del row[name]
    assert found == wanted


def test_encoded_records_are_the_same_as_well(drawn: Path, encoded: Path, build: Run, tmp_path):
    rows = data_sets.read_rows(drawn / "pairs.csv")
    manifest = data_sets.write_csv(tmp_path / "m.csv", reversed(rows), "image,mask,scene")
    options = ("--payload", "encoded", "--num-shards", 4, "--threads", 5, "--source-root", drawn)
    assert build(manifest, tmp_path / "set", *options).status == 0
    assert data_sets.differing(tmp_path / "set", encoded) == []


def test_bad_rows_are_listed_in_the_same_way_wherever_they_stood(
    drawn: Path, build: Run, tmp_path: Path
):
    rows = [row[:2] for row in data_sets.read_rows(drawn / "pairs.csv")]
    rows += [["alone"], ["one", "too", "many"], ["", "masks/000000.png"], ["alone"]]
    options = ("--source-root", drawn, "--max-rejects", 4)
    assert (
        build(data_sets.write_csv(tmp_path / "m.csv", rows), tmp_path / "a", *options).status == 0
    )
    random.Random(1).shuffle(rows)
    parts = [data_sets.write_csv(tmp_path / f"{n}.csv", rows[n::3]) for n in range(3)]
    assert build(parts, tmp_path / "b", *options).status == 0
    assert data_sets.differing(tmp_path / "a", tmp_path / "b") == []
    texts = [reject["text"] for reject in data_sets.read_rejects(tmp_path / "a")]
    assert sorted(texts) == [",masks/000000.png", "alone", "alone", "one,too,many"]


def test_the_sequence_of_the_keys_is_the_same_for_any_number_of_shards(
    drawn: Path, build: Run, tmp_path: Path
):
    found: dict[int, list[list[str]]] = {}
    for number in (1, 2, 4, 8, 16):
        output = tmp_path / str(number)
        assert build(drawn / "pairs.csv", output, "--num-shards", number).status == 0
        names = data_sets.shard_names(output)
        assert names[-1] == f"train-{number - 1:05d}-of-{number:05d}.tfrecord"
        assert len(names) == number
        found[number] = [data_sets.keys_of(output, name) for name in names]
    expected = [image for image, _, _ in data_sets.read_rows(drawn / "pairs.csv")]
    expected.sort(key=order_by_hand)
    for number, shards in found.items():
        assert [key for shard in shards for key in shard] == expected
        if number > 1:
            halves = zip(shards[::2], shards[1::2], strict=True)
            assert [first + second for first, second in halves] == found[number // 2]


def test_another_seed_is_another_order_of_the_same_splits(
    drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    sequences = []
    for seed in (0, -7):
        output = tmp_path / str(seed)
        options = ("--seed", seed, "--split", "train=0.5,val=0.5", "--num-shards", 1)
        assert build(drawn / "pairs.csv", output, *options).status == 0
        sequences.append(
            [data_sets.keys_of(output, f"{n}-00000-of-00001.tfrecord") for n in ("train", "val")]
        )
        assert sequences[-1][0] == sorted(sequences[-1][0], key=lambda k: order_by_hand(k, seed))
    assert sequences[0] != sequences[1]
    assert len({(frozenset(train), frozenset(val)) for train, val in sequences}) == 1
    assert all(map(len, sequences[0]))


def order_by_hand(key: str, seed: int = 0) -> int:
    digest = hashlib.sha256(f"order\0{seed}\0{key}".encode()).hexdigest()
    return int(digest[:32], 16)


def test_the_order_is_the_hash_that_the_design_writes_down():
    # printf 'order\0000\000images/000000.jpg' | sha256sum | cut -c-32
    assert keys.order_of("images/000000.jpg", seed=0) == 0xED7F7F669E382C1ADBD135FE7B1B6DCA
    assert keys.order_of("images/000000.jpg", seed=-12) == 0x40FC0208465198C28328FE27C93AB202
    assert keys.order_of("Straße 東京 😀", seed=7) == 0x5B9DC88FCA0EFAE899E857AD36DDC229
    assert keys.order_of("Straße 東京 😀", seed=7) == order_by_hand("Straße 東京 😀", 7)


def test_the_shard_is_the_orders_place_among_all_orders():
    top = 2**128 - 1
    assert [keys.shard_of(0, num_shards=n) for n in (1, 3, 99_999)] == [0, 0, 0]
    assert [keys.shard_of(top, num_shards=n) for n in (1, 3, 99_999)] == [0, 2, 99_998]
    assert keys.shard_of(2**127, num_shards=2) == 1
    assert keys.shard_of(2**127 - 1, num_shards=2) == 0
    key = "images/000000.jpg"
    settings, row = ShardSettings(), Row(key, (key, key))
    shards = [shard_of_row(row, settings, {"train": n}).index for n in (1, 2, 4, 8, 16, 1000)]
    assert shards == [0, 1, 3, 7, 14, 927]  # 0xED7F… is 0.92772 of 2**128


def test_the_split_is_the_hash_that_the_design_writes_down():
    # printf 'split\000images/000000.jpg' | sha256sum | cut -c-16
    point = int(hashlib.sha256(b"split\0images/000000.jpg").hexdigest()[:16], 16)
    assert point == 0x1DD93A98767CCB63
    below, above = Fraction(point, 2**64), Fraction(point + 1, 2**64)
    for share, split in ((below, "val"), (above, "train")):
        fractions = (("train", share), ("val", 1 - share))
        assert keys.split_of("images/000000.jpg", fractions) == split


def test_a_group_decides_the_split_and_a_named_split_wins():
    halves = (("train", Fraction(1, 2)), ("val", Fraction(1, 2)))
    for seed in (0, 1):
        settings = ShardSettings(seed=seed, splits=halves)
        for number in range(50):
            alone = split_of_row(Row(f"g{number}", ("i", "m")), settings)
            grouped = split_of_row(Row(f"k{number}", ("i", "m"), group=f"g{number}"), settings)
            assert alone == grouped == keys.split_of(f"g{number}", halves)
        assert split_of_row(Row("k", ("i", "m"), split="test", group="g"), settings) == "test"
