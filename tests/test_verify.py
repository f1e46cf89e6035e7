"""`pairshard verify`, end to end: what is wrong is named, and a changed source is not."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import data_sets
import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPO, Ran, Run
from PIL import Image

from beam_pipeline.config import Resources, Sampling
from beam_pipeline.verify import choose_shards, open_dataset_folder, run_verify
from launch.local import run_locally
from transforms.core import keys
from transforms.core.errors import ConfigError
from transforms.core.verifying import ShardCheck

pytestmark = pytest.mark.usefixtures("verify_here")

RAW_HEIGHT, RAW_WIDTH = 36, 48


@pytest.fixture
def data(raw: Path, tmp_path: Path) -> Path:
    """A copy of the raw data set, to be damaged."""
    return Path(shutil.copytree(raw, tmp_path / "data"))


@pytest.fixture
def data_encoded(encoded: Path, tmp_path: Path) -> Path:
    """A copy of the encoded data set, to be damaged."""
    return Path(shutil.copytree(encoded, tmp_path / "data"))


def wrong_lines(ran: Ran) -> list[str]:
    return [line.strip() for line in ran.out.splitlines() if line.startswith("  wrong: ")]


def first_record(folder: Path) -> tuple[str, dict]:
    """A shard and the index row of its first record."""
    shard = data_sets.shard_names(folder)[0]
    rows = [row for row in data_sets.read_index(folder, shard) if row["status"] == "written"]
    return shard, rows[0]


def test_a_right_data_set(run: Run, raw: Path, tmp_path: Path) -> None:
    before = data_sets.look_at(raw)
    ran = run("verify", raw, "--report", tmp_path / "wrong.txt")
    assert (ran.status, (tmp_path / "wrong.txt").read_text()) == (0, "")
    assert ran.out == (
        "verified: 4 shards, 24 records read back, 24 compared with their sources, 0 wrong\n"
    )
    assert data_sets.look_at(raw) == before


def test_a_right_encoded_data_set(run: Run, encoded: Path) -> None:
    before = data_sets.look_at(encoded)
    ran = run("verify", encoded, "--quiet")
    assert (ran.status, ran.out) == (0, "")
    assert data_sets.look_at(encoded) == before


def test_in_a_process_of_its_own_nothing_else_is_said(run_apart: Run, raw: Path) -> None:
    ran = run_apart("verify", raw, "--threads", 2, TF_CPP_MIN_LOG_LEVEL="0")
    assert (ran.status, ran.out.count("\n")) == (0, 1), ran.err
    assert all(line.startswith("verify: ") for line in ran.err.splitlines()), ran.err


def test_from_another_folder(raw: Path, drawn: Path, tmp_path: Path) -> None:
    """The process that compares is really started, and finds what it needs."""
    data = os.path.relpath(raw, tmp_path)
    sources = os.path.relpath(drawn, tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "launch", "verify", data, "--source-root", sources],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPO)},
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("24 compared with their sources, 0 wrong\n")


def forge(folder: Path, shard: str, number: int, change: object) -> None:
    """Changes a record, and makes frames, index and dataset.json say so: all is consistent."""
    records = list(data_sets.read_records(folder / shard))
    assert callable(change)
    records[number] = change(records[number])
    frames = [_frame(record) for record in records]
    (folder / shard).write_bytes(b"".join(frames))
    path = folder / "index" / shard.replace(".tfrecord", ".parquet")
    table = pq.read_table(path)
    crc = google_crc32c.value(b"".join(frames))
    offsets = [sum(map(len, frames[:n])) for n in range(len(frames))]
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "length": pa.array([len(record) for record in records], pa.int64()),
        "crc32c": pa.array([google_crc32c.value(record) for record in records], pa.uint32()),
    }
    account = json.loads(table.schema.metadata[b"pairshard"])
    account |= {"size_bytes": sum(map(len, frames)), "crc32c": crc}
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    meta = {b"pairshard": json.dumps(account).encode()}
    pq.write_table(table.replace_schema_metadata(meta), path, write_page_checksum=True)
    dataset = data_sets.read_json(folder, "dataset.json")
    split = dataset["splits"]["train"]
    entry = next(entry for entry in split["shards"] if entry["name"] == shard)
    split["bytes"] += account["size_bytes"] - entry["bytes"]
    entry |= {"bytes": account["size_bytes"], "crc32c": f"{crc:08x}"}
    (folder / "dataset.json").write_text(json.dumps(dataset))


def _frame(record: bytes) -> bytes:
    def masked(part: bytes) -> bytes:
        crc = google_crc32c.value(part)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def source_pixels(drawn: Path, row: dict) -> tuple[np.ndarray, np.ndarray]:
    image = np.array(Image.open(drawn / row["image"]).convert("RGB"))
    return image, np.array(Image.open(drawn / row["mask"]))


def test_only_the_source_tells_a_pixel_that_is_off_by_one(
    run: Run, data: Path, drawn: Path
) -> None:
    shard, row = first_record(data)
    pixels, _ = source_pixels(drawn, row)
    y, x, c = 7, 11, 2
    value = int(pixels[y, x, c])

    def change(record: bytes) -> bytes:
        at = record.index(pixels.tobytes()) + (y * RAW_WIDTH + x) * 3 + c
        return record[:at] + bytes([value ^ 1]) + record[at + 1 :]

    forge(data, shard, 0, change)
    ran = run("verify", data)
    assert ran.status == 1
    assert ran.out.splitlines() == [
        "verified: 4 shards, 24 records read back, 24 compared with their sources, 1 wrong",
        f"  wrong: {shard} at 0 ({row['key']}): image_raw: 1 of {pixels.size} values differ from "
        f"{row['image']}, first at [7, 11, 2]: {value ^ 1}, expected {value}",
    ]


def test_only_the_source_tells_an_id_that_is_off(run: Run, data: Path, drawn: Path) -> None:
    shard = data_sets.shard_names(data)[1]
    row = data_sets.read_index(data, shard)[1]
    _, ids = source_pixels(drawn, row)
    y, x = 20, 3

    def change(record: bytes) -> bytes:
        at = record.index(ids.tobytes()) + y * RAW_WIDTH + x
        return record[:at] + bytes([77]) + record[at + 1 :]

    forge(data, shard, 1, change)
    ran = run("verify", data)
    assert (ran.status, wrong_lines(ran)) == (
        1,
        [
            f"wrong: {shard} at {row['offset']} ({row['key']}): mask_raw: 1 of {ids.size} values "
            f"differ from {row['mask']}, first at [20, 3]: 77, expected {ids[y, x]}"
        ],
    )


def test_only_the_source_tells_another_pictures_pixels(run: Run, data: Path, drawn: Path) -> None:
    shard = data_sets.shard_names(data)[0]
    rows = data_sets.read_index(data, shard)
    other = list(data_sets.read_records(data / shard))[1]
    forge(data, shard, 0, lambda record: other)
    ran = run("verify", data)
    (line,) = wrong_lines(ran)
    assert ran.status == 1
    assert line.startswith(f"wrong: {shard} at 0 ({rows[0]['key']}): image_raw: ")
    assert f" differ from {rows[0]['image']}, first at [" in line


def test_a_size_that_is_wrong(run: Run, data: Path) -> None:
    """The same number of pixels, and every value right."""
    shard, row = first_record(data)
    old, new = b"\x1a\x03\n\x01", (RAW_HEIGHT, RAW_WIDTH)

    def change(record: bytes) -> bytes:
        head = old + bytes([new[0]])
        assert head in record
        turned = record.replace(head, old + b"\x30", 1)
        at = turned.rindex(old)
        return turned[:at] + old + b"\x24" + turned[at + 5 :]

    forge(data, shard, 0, change)
    said = [f"size: is 48×36 (height×width), in {row['image']} 36×48"]
    said += [f"size: is 48×36 (height×width), in {row['mask']} 36×48"]
    said += ["size: is 48×36 (height×width), in the index 36×48"]
    assert wrong_lines(run("verify", data)) == [
        f"wrong: {shard} at 0 ({row['key']}): {'; '.join(said)}"
    ]


def test_bytes_that_are_no_example(run: Run, data: Path) -> None:
    shard, row = first_record(data)
    forge(data, shard, 0, lambda record: b"not an example at all")
    ran = run("verify", data)
    (line,) = wrong_lines(ran)
    assert ran.status == 1
    assert line.startswith(
        f"wrong: {shard} at 0 ({row['key']}): TensorFlow can't parse the record: "
    )


def test_an_encoded_image_with_a_byte_more(run: Run, data_encoded: Path, drawn: Path) -> None:
    shard, row = first_record(data_encoded)
    source = (drawn / row["image"]).read_bytes()

    def change(record: bytes) -> bytes:
        at = record.index(source)
        return record[: at + 300] + bytes([source[300] ^ 1]) + record[at + 301 :]

    forge(data_encoded, shard, 0, change)
    assert wrong_lines(run("verify", data_encoded)) == [
        f"wrong: {shard} at 0 ({row['key']}): image/encoded: is not the bytes of {row['image']}"
    ]


def test_an_encoded_mask_of_another_picture(run: Run, data_encoded: Path, drawn: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    shard = data_sets.shard_names(data_encoded)[0]
    row = data_sets.read_index(data_encoded, shard)[0]
    ids = source_pixels(drawn, row)[1].copy()
    ids[30, 40] ^= 1

    def change(record: bytes) -> bytes:
        example = tf.train.Example.FromString(record)
        feature = example.features.feature["image/segmentation/class/encoded"]
        feature.bytes_list.value[0] = tf.io.encode_png(ids[:, :, None]).numpy()
        return example.SerializeToString(deterministic=True)

    forge(data_encoded, shard, 0, change)
    assert wrong_lines(run("verify", data_encoded)) == [
        f"wrong: {shard} at 0 ({row['key']}): image/segmentation/class/encoded: 1 of {ids.size} "
        f"values differ from {row['mask']}, first at [30, 40]: {ids[30, 40]}, expected "
        f"{ids[30, 40] ^ 1}"
    ]


def test_a_palette_mask_is_wrong_since_tensorflow_sees_colours(
    run: Run, data_encoded: Path, drawn: Path
) -> None:
    tf = pytest.importorskip("tensorflow")

    shard, row = first_record(data_encoded)

    def change(record: bytes) -> bytes:
        example = tf.train.Example.FromString(record)
        features = example.features.feature
        mask = (drawn / row["mask"]).read_bytes()
        features["image/segmentation/class/encoded"].bytes_list.value[0] = mask
        features["image/format"].bytes_list.value[0] = b"png"
        return example.SerializeToString(deterministic=True)

    forge(data_encoded, shard, 0, change)
    (line,) = wrong_lines(run("verify", data_encoded))
    assert "image/format: is b'png', expected b'jpeg'; image/segmentation/class/encoded: " in line


def test_a_flipped_bit_is_found_with_its_place(run: Run, data: Path, tmp_path: Path) -> None:
    shard = data_sets.shard_names(data)[2]
    rows = data_sets.read_index(data, shard)
    damaged = bytearray((data / shard).read_bytes())
    damaged[rows[1]["offset"] + 500] ^= 4
    (data / shard).write_bytes(damaged)
    report = tmp_path / "wrong.txt"
    ran = run("verify", data, "--report", report, "--quiet")
    line = (
        f"wrong: {shard} at {rows[1]['offset']} ({rows[1]['key']}): the CRC of the data "
        f"({rows[1]['length']} bytes) is wrong"
    )
    assert (ran.status, wrong_lines(ran), report.read_text()) == (1, [line], line + "\n")
    assert "23 compared with their sources, 1 wrong" in ran.out


def test_a_missing_shard_and_a_missing_index(run: Run, data: Path) -> None:
    first, second = data_sets.shard_names(data)[:2]
    index = "index/" + second.replace(".tfrecord", ".parquet")
    (data / first).unlink()
    (data / index).unlink()
    ran = run("verify", data)
    assert (ran.status, wrong_lines(ran)) == (
        1,
        [f"wrong: {first}: {first} is missing", f"wrong: {second}: {index} is missing"],
    )


def test_a_shard_too_many(run: Run, data: Path) -> None:
    shutil.copy(data / data_sets.shard_names(data)[0], data / "train-00000-of-00008.tfrecord")
    ran = run("verify", data)
    assert (ran.status, wrong_lines(ran)) == (
        1,
        [
            "wrong: train-00000-of-00008.tfrecord: is none of the shards of dataset.json; "
            "a reader's glob would read it too"
        ],
    )


def test_a_dataset_json_whose_sums_are_wrong(run: Run, data: Path) -> None:
    dataset = data_sets.read_json(data, "dataset.json")
    dataset["rows"]["read"] = 25
    (data / "dataset.json").write_text(json.dumps(dataset))
    ran = run("verify", data)
    line = "wrong: dataset.json: rows read: it says 25, which sum to 24"
    assert (ran.status, wrong_lines(ran)) == (1, [line])


def change_dataset(folder: Path, change: Callable[[dict], object]) -> None:
    dataset = data_sets.read_json(folder, "dataset.json")
    change(dataset)
    (folder / "dataset.json").write_text(json.dumps(dataset))


def change_index(folder: Path, shard: str, name: str, values: list[object]) -> None:
    """Changes a column of an index, all else left as it is."""
    path = folder / "index" / shard.replace(".tfrecord", ".parquet")
    table = pq.read_table(path)
    at = table.column_names.index(name)
    table = table.set_column(at, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(table, path, write_page_checksum=True)


def test_two_keys_swapped_in_an_index(run: Run, data: Path) -> None:
    shard = data_sets.shard_names(data)[1]
    rows = data_sets.read_index(data, shard)
    names = [row["key"] for row in rows]
    names[0], names[2] = names[2], names[0]
    change_index(data, shard, "key", names)
    ran = run("verify", data)
    what = "by its key and seed 0 it belongs elsewhere in the shard's order"
    assert (ran.status, wrong_lines(ran)) == (
        1,
        [
            f"wrong: {shard} at {rows[0]['offset']} ({rows[2]['key']}): {what}",
            f"wrong: {shard} at {rows[2]['offset']} ({rows[0]['key']}): {what}",
        ],
    )


def test_keys_swapped_between_two_shards(run: Run, data: Path) -> None:
    shards = data_sets.shard_names(data)[1:3]
    rows = [data_sets.read_index(data, shard) for shard in shards]
    names = [[row["key"] for row in own] for own in rows]
    names[0][0], names[1][0] = names[1][0], names[0][0]
    for shard, own in zip(shards, names, strict=True):
        change_index(data, shard, "key", own)
    assert wrong_lines(run("verify", data)) == [
        f"wrong: {shards[n]} at 0 ({names[n][0]}): by its key and seed 0 it belongs in shard "
        f"{2 - n} of 4"
        for n in (0, 1)
    ]


def test_an_index_of_another_split(run: Run, data: Path) -> None:
    shard = data_sets.shard_names(data)[0]
    rows = data_sets.read_index(data, shard)
    change_index(data, shard, "split", ["val"] * len(rows))
    assert wrong_lines(run("verify", data)) == [
        f"wrong: {shard} at {row['offset']} ({row['key']}): the index has it in split 'val', the "
        "shard is of 'train'"
        for row in rows
    ]


def test_pixels_that_are_not_the_indexes(run: Run, data: Path) -> None:
    pixels = {value: entry["pixels"] for value, entry in read_classes(data).items()}

    def forget(dataset: dict) -> None:
        for entry in dataset["classes"].values():
            entry["pixels"] = 1

    change_dataset(data, forget)
    assert wrong_lines(run("verify", data)) == sorted(
        f"wrong: dataset.json: pixels of class {value}: it says 1, the indexes have {number}"
        for value, number in pixels.items()
        if number != 1
    )


def read_classes(folder: Path) -> dict[str, dict]:
    return data_sets.read_json(folder, "dataset.json")["classes"]


def test_an_index_that_cannot_be_read_hides_the_sums_alone(run: Run, data: Path) -> None:
    """What it would add is not known; that it lacks is said."""
    index = "index/" + data_sets.shard_names(data)[0].replace(".tfrecord", ".parquet")
    (data / index).unlink()
    change_dataset(data, lambda dataset: dataset["classes"]["0"].update(pixels=1))
    (line,) = wrong_lines(run("verify", data))
    assert line.endswith(f"{index} is missing")


def test_shards_that_dataset_json_puts_in_another_order(run: Run, data: Path) -> None:
    change_dataset(data, lambda dataset: dataset["splits"]["train"]["shards"].reverse())
    assert wrong_lines(run("verify", data)) == [
        "wrong: dataset.json: shards of train: the names of all 4 were expected, in order"
    ]


def test_rejects_that_are_not_there(run: Run, data: Path) -> None:
    (data / "rejects.jsonl").unlink()
    assert wrong_lines(run("verify", data)) == ["wrong: rejects.jsonl: rejects.jsonl is missing"]


@pytest.fixture(scope="module")
def mixed(drawn: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two splits and another seed, with rejects of several kinds."""
    folder = tmp_path_factory.mktemp("mixed")
    rows = [
        [*row[:2], row[0], "val" if n % 3 else "train"]
        for n, row in enumerate(data_sets.read_rows(drawn / "pairs.csv"))
    ]
    rows += [["none.jpg", rows[0][1], f"lost {n}", "val"] for n in range(3)]
    rows += [["/etc/hostname", rows[0][1], "outside", "train"]] * 2  # none of both is kept
    rows += [[*rows[3][:2], rows[0][2], "val"], [*rows[4][:2], rows[0][2], "train"]]
    rows += [["one cell"], ["images/000000.jpg", rows[0][1], "", "no key", "too many"]]
    manifest = folder / "mixed.csv"
    data_sets.write_csv(manifest, rows, "image,mask,key,split")
    options = ("--seed", 77, "--num-shards", "train=2,val=4", "--max-rejects", 20)
    ran = build(manifest, folder / "out", "--source-root", drawn, *options)
    assert ran.status == 0, ran.err
    return folder / "out"


@pytest.fixture
def data_mixed(mixed: Path, tmp_path: Path) -> Path:
    """A copy of the mixed data set, to be damaged."""
    return Path(shutil.copytree(mixed, tmp_path / "data"))


def test_a_right_data_set_with_splits_and_rejects(run: Run, mixed: Path) -> None:
    ran = run("verify", mixed)
    assert (ran.status, wrong_lines(ran)) == (0, [])
    assert data_sets.read_json(mixed, "dataset.json")["rows"]["rejected"] == {
        "bad_row": 2,
        "duplicate_key": 3,
        "missing_file": 3,
        "path_outside_root": 1,
    }


def test_rejects_that_were_emptied(run: Run, data_mixed: Path) -> None:
    (data_mixed / "rejects.jsonl").write_bytes(b"")
    assert wrong_lines(run("verify", data_mixed)) == [
        f"wrong: rejects.jsonl: rejects of {code}: it has 0 lines, dataset.json says {number}"
        for code, number in (
            ("bad_row", 2),
            ("duplicate_key", 3),
            ("missing_file", 3),
            ("path_outside_root", 1),
        )
    ]


@pytest.mark.parametrize("line", ["", "no json", "[]", "{}", "7", "[" * 100_000, '"\xff"'])
def test_a_line_that_is_no_reject(run: Run, data_mixed: Path, line: str) -> None:
    path = data_mixed / "rejects.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], line.encode("latin-1") + b"\n", *lines[4:]]))
    assert wrong_lines(run("verify", data_mixed)) == [
        "wrong: rejects.jsonl: 1 lines can't be read as a reject, the first is line 5"
    ]


def test_rejects_of_another_code(run: Run, data_mixed: Path) -> None:
    def change(dataset: dict) -> None:
        dataset["rows"]["rejected"] |= {"missing_file": 2, "truncated": 1}

    change_dataset(data_mixed, change)
    assert wrong_lines(run("verify", data_mixed)) == [
        "wrong: dataset.json: rows rejected as missing_file: it says 2, the indexes have 3",
        "wrong: dataset.json: rows rejected as truncated: it says 1, the indexes have 0",
        "wrong: rejects.jsonl: rejects of missing_file: it has 3 lines, dataset.json says 2",
        "wrong: rejects.jsonl: rejects of truncated: it has 0 lines, dataset.json says 1",
    ]


def test_the_first_twenty_are_printed_and_all_reported(
    run: Run, data: Path, tmp_path: Path
) -> None:
    for shard in data_sets.shard_names(data):
        (data / shard).write_bytes(b"")
    report = tmp_path / "wrong.txt"
    ran = run("verify", data, "--report", report)
    lines = report.read_text().splitlines()
    assert (ran.status, len(lines), wrong_lines(ran)) == (1, 24 + 8, lines[:20])
    assert ran.out.splitlines()[-1] == "  … and 12 more; verify --report FILE lists them all"


def test_a_changed_source_is_no_wrong_record(run: Run, data: Path, sources: Path) -> None:
    shard, row = first_record(data)
    path = sources / row["image"]
    then = path.read_bytes()
    Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path, quality=80)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    now = path.read_bytes()
    ran = run("verify", data, "--source-root", sources)
    changed = (
        f"  source changed: {shard} at 0 ({row['key']}): {row['image']} is not the file of the "
        f"build: {len(now)} bytes of 2023-11-14 22:13:20 UTC with crc32c "
        f"{google_crc32c.value(now):08x} now, {len(then)} bytes of "
    )
    assert (ran.status, wrong_lines(ran)) == (0, [])
    assert "23 compared with their sources, 0 wrong, 1 of another source now" in ran.out
    assert changed in ran.out


def test_a_missing_source_is_no_wrong_record(run: Run, data: Path, sources: Path) -> None:
    shard, row = first_record(data)
    (sources / row["mask"]).unlink()
    ran = run("verify", data, "--source-root", sources, "--quiet")
    assert ran.status == 0
    assert (
        f"  source changed: {shard} at 0 ({row['key']}): {row['mask']} can't be read now: "
        "No such file or directory\n"
    ) in ran.out


def test_a_changed_source_does_not_hide_a_wrong_record(run: Run, data: Path, sources: Path) -> None:
    first, second = data_sets.shard_names(data)[:2]
    row = data_sets.read_index(data, first)[0]
    (sources / row["mask"]).unlink()
    other = list(data_sets.read_records(data / second))[1]
    forge(data, second, 0, lambda record: other)
    ran = run("verify", data, "--source-root", sources)
    assert (ran.status, len(wrong_lines(ran))) == (1, 1)
    assert wrong_lines(ran)[0].startswith(f"wrong: {second} at 0 ")
    assert f"  source changed: {first} at 0 ({row['key']}): " in ran.out


def test_a_source_that_was_only_touched_is_compared(run: Run, data: Path, sources: Path) -> None:
    for path in sources.glob("images/*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    ran = run("verify", data, "--source-root", sources)
    assert (ran.status, "24 compared with their sources, 0 wrong\n" in ran.out) == (0, True)


def test_if_nothing_can_be_compared_it_does_not_look_right(
    run: Run, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    ran = run("verify", data, "--source-root", tmp_path / "elsewhere")
    assert ran.status == 2
    assert "0 compared with their sources, 0 wrong, 24 of another source now" in ran.out
    assert "no record could be compared: below " in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--source-root", "/nowhere/at/all"), "the source root /nowhere/at/all is not there; "),
        (("--fraction", "0"), "--fraction 0: a share above 0, at most 1, is meant"),
        (("--fraction", "1.5"), "--fraction 1.5: a share above 0, at most 1, is meant"),
        (("--shards", "0"), "--shards 0: at least one shard is meant"),
        (("--all", "--fraction", "0.5"), "not allowed with argument"),
    ],
)
def test_wrong_use(run: Run, raw: Path, options: tuple[str, ...], said: str) -> None:
    ran = run("verify", raw, *options)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_the_report_may_not_stand_in_the_data_set(run: Run, data: Path) -> None:
    ran = run("verify", data, "--report", data / "index" / "wrong.txt")
    assert ran.status == 2
    assert "wrong.txt: a file outside of the data set is meant" in ran.err


def test_without_run_json_the_source_root_must_be_given(run: Run, data: Path, drawn: Path) -> None:
    (data / "run.json").unlink()
    ran = run("verify", data)
    assert ran.status == 2
    assert "run.json names no source root; --source-root says where the sources" in ran.err
    assert run("verify", data, "--source-root", drawn).status == 0


@pytest.mark.parametrize("text", ["{}", "[]", '{"format_version": 1}', "no json"])
def test_a_dataset_json_that_is_none(run: Run, data: Path, text: str) -> None:
    (data / "dataset.json").write_text(text)
    ran = run("verify", data)
    assert ran.status == 2
    assert "Traceback" not in ran.err


def test_no_data_set(run: Run, tmp_path: Path) -> None:
    ran = run("verify", tmp_path)
    assert ran.status == 2
    assert "has no dataset.json; a data set's folder is meant" in ran.err


def compared(raw: Path, sampling: Sampling, tmp_path: Path, *, threads: int = 1) -> list[str]:
    """The keys that are compared: with sources that are gone, each is named."""
    config, checks, _ = open_dataset_folder(
        str(raw), str(tmp_path), sampling, Resources(threads=threads)
    )
    report = run_verify(config, checks, run_locally)
    assert (report.compared, report.failures) == (0, ())
    return sorted(failure.key for failure in report.changed)


def all_keys(folder: Path) -> list[str]:
    names = data_sets.shard_names(folder)
    return sorted(key for name in names for key in data_sets.keys_of(folder, name))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_lowest_by_rank_are_compared(raw: Path, tmp_path: Path, seed: int) -> None:
    found = compared(raw, Sampling(records=10, seed=seed), tmp_path)
    ranked = sorted(all_keys(raw), key=lambda key: keys.verify_rank(key, seed=seed))
    assert found == sorted(ranked[:10])


def test_as_many_as_there_are(raw: Path, tmp_path: Path) -> None:
    assert compared(raw, Sampling(records=23), tmp_path) != all_keys(raw)
    assert compared(raw, Sampling(records=24), tmp_path) == all_keys(raw)
    assert compared(raw, Sampling(), tmp_path) == all_keys(raw)


def test_a_fraction(raw: Path, tmp_path: Path) -> None:
    found = compared(raw, Sampling(records=None, fraction=0.25, seed=3), tmp_path)
    low = [key for key in all_keys(raw) if keys.verify_rank(key, seed=3) < 2**60]
    assert found == low != []


def test_some_shards(raw: Path, tmp_path: Path) -> None:
    sampling = Sampling(records=5, num_shards=2, seed=1)
    found = compared(raw, sampling, tmp_path)
    names = data_sets.shard_names(raw)
    chosen = sorted(names, key=lambda name: keys.verify_rank(name, seed=1))[:2]
    inside = [key for name in chosen for key in data_sets.keys_of(raw, name)]
    lowest = sorted(inside, key=lambda key: keys.verify_rank(key, seed=1))[:5]
    assert found == sorted(lowest)


def test_shards_that_are_not_sampled_are_read_all_the_same(run: Run, data: Path) -> None:
    names = data_sets.shard_names(data)
    checks = [ShardCheck(name, 1, 1, 1, 0) for name in names]
    chosen = choose_shards(checks, Sampling(num_shards=1))
    other = next(check.name for check in chosen if not check.sampled)
    damaged = bytearray((data / other).read_bytes())
    damaged[0] ^= 1
    (data / other).write_bytes(damaged)
    ran = run("verify", data, "--shards", 1)
    row = data_sets.read_index(data, other)[0]
    assert (ran.status, wrong_lines(ran)) == (
        1,
        [f"wrong: {other} at 0 ({row['key']}): the CRC of the length is wrong"],
    )


def test_several_workers_find_the_same(
    raw: Path, drawn: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("beam_pipeline.verify.RECORDS_PER_WORKER", 1)
    monkeypatch.setattr("beam_pipeline.verify.THREADS_PER_WORKER", 1)
    assert compared(raw, Sampling(), tmp_path, threads=3) == all_keys(raw)


def test_rejected_rows_and_empty_shards(
    run: Run, build: Run, drawn: Path, sources: Path, tmp_path: Path
) -> None:
    (sources / "masks" / "000001.png").unlink()
    output = tmp_path / "few"
    rows = data_sets.read_rows(sources / "pairs.csv")[:3]
    manifest = data_sets.write_csv(sources / "few.csv", [row[:2] for row in rows])
    ran = build(manifest, output, "--num-shards", 8, "--max-rejects", 1)
    assert ran.status == 0, ran.out
    ran = run("verify", output)
    assert ran.status == 0
    assert ran.out.startswith("verified: 8 shards, 2 records read back, 2 compared")


def test_a_build_that_is_verified(run: Run, drawn: Path, tmp_path: Path) -> None:
    ran = run("build", drawn / "pairs.csv", "--output", tmp_path / "out")
    assert ran.status == 0, ran.err
    assert "24 compared with their sources, 0 wrong" in ran.out


def test_without_tensorflow_it_says_so(run_apart: Run, raw: Path, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no tensorflow here')")
    path = os.pathsep.join([str(tmp_path), str(REPO)])
    ran = run_apart("verify", raw, PYTHONPATH=path)
    assert ran.status == 2
    assert "TensorFlow, which can't be imported: no tensorflow here. Install it, or" in ran.err


def test_sampling_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ConfigError):
        Sampling(fraction=0)
