"""`pairshard show`: what is printed and saved, each text written out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import data_sets
import google_crc32c
import numpy as np
import pictures
import pytest
from conftest import REPO, Run
from PIL import Image

from beam_pipeline.show import format_dataset, format_record, format_records
from transforms.core.errors import ConfigError

WHEN = 1_700_000_000  # 2023-11-14 22:13:20 UTC
CLASSES = "road\nsky\n"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pairs of two sizes, one row without a file, one that stands twice."""
    root = tmp_path_factory.mktemp("scenes")
    rows = []
    for number, (height, width) in enumerate([(8, 12), (8, 12), (6, 10)]):
        image = pictures.save(pictures.draw_rgb(height, width, number), "PNG")
        ids = np.zeros((height, width), np.uint8)
        ids[0], ids[1, :3] = 1, 255
        (root / f"i{number}.png").write_bytes(image)
        (root / f"m{number}.png").write_bytes(pictures.save(ids, "PNG", "P"))
        rows.append((f"i{number}.png", f"m{number}.png"))
    rows += [("i0.png", "m1.png"), ("lost.png", "m0.png")]
    data_sets.write_csv(root / "pairs.csv", rows)
    (root / "classes.txt").write_text(CLASSES)
    for path in root.glob("*.png"):
        os.utime(path, (WHEN, WHEN))
    return root


def build_scenes(scenes: Path, output: Path, build: Run, *options: str) -> Path:
    classes = ("--classes", scenes / "classes.txt")
    gate = ("--max-rejects", "40%", "--num-shards", "2")
    ran = build(scenes / "pairs.csv", output, *classes, *gate, *options)
    assert ran.status == 0, ran.err + ran.out
    return output


@pytest.fixture(scope="module")
def shown(scenes: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_scenes(scenes, tmp_path_factory.mktemp("shown") / "data", build)


@pytest.fixture(scope="module")
def shown_encoded(scenes: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("shown") / "data"
    return build_scenes(scenes, output, build, "--payload", "encoded")


def test_the_whole_data_set(shown: Path) -> None:
    size = sum(path.stat().st_size for path in shown.glob("*.tfrecord"))
    pillow = data_sets.read_json(shown, "dataset.json")["decoders"]["pillow"]
    assert format_dataset(str(shown)).splitlines() == [
        f"{shown}: pairs, payload raw",
        "split  shards  records    bytes",
        f"train       2        3  {size / 1024:.1f} KiB",
        "pictures: 10 to 12 wide, 6 to 8 high",
        "rows: 5 read = 3 written + 2 rejected (rejects.jsonl says why)",
        "  duplicate_key: 1",
        "  missing_file: 1",
        "class       name  pixels    share",
        "0           road     209  82.94 %",
        "1            sky      34  13.49 %",
        "255    (ignored)       9   3.57 %",
        "settings: splits train=1, seed 0, classes 2, ignore id 255, max pixels 100,000,000, "
        f"pillow {pillow}, format version 1",
    ]


def test_a_common_size(raw: Path) -> None:
    assert "pictures: 48×36 (width×height)" in format_dataset(str(raw)).splitlines()


def test_sizes_need_the_indexes(shown: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(shown, tmp_path / "copy"))
    shutil.rmtree(copy / "index")
    assert "pictures: ? wide, ? high" in format_dataset(str(copy)).splitlines()


def place_of(folder: Path, key: str) -> tuple[str, dict]:
    for shard in data_sets.shard_names(folder):
        for row in data_sets.read_index(folder, shard):
            if row["key"] == key and row["status"] == "written":
                return shard, row
    raise AssertionError(key)


def test_the_first_records(shown: Path) -> None:
    texts = list(format_records(str(shown), 2))
    keys = [
        (name, key)
        for name in data_sets.shard_names(shown)
        for key in data_sets.keys_of(shown, name)
    ]
    for text, (name, key) in zip(texts, keys, strict=False):
        row = place_of(shown, key)[1]
        height, width = row["height"], row["width"]
        assert text.splitlines() == [
            f"{name} at {row['offset']:,}: {row['length']:,} bytes",
            f"  height     int64  {height}",
            f"  image_raw  bytes  {height * width * 3:,} bytes, uint8[{height}, {width}, 3]",
            f"  mask_raw   bytes  {height * width:,} bytes, uint8[{height}, {width}]",
            f"  width      int64  {width}",
        ]
    assert len(texts) == 2
    assert len(list(format_records(str(shown), 100))) == 3


def test_the_first_record_of_encoded(shown_encoded: Path) -> None:
    (text,) = format_records(str(shown_encoded), 1)
    name, row = place_of(shown_encoded, text.partition("image/filename")[2].split("'")[1])
    lines = text.splitlines()
    assert lines[0] == f"{name} at 0: {row['length']:,} bytes"
    assert lines[1:6] == [
        "  image/channels                    int64  3",
        f"  image/encoded                     bytes  {row['image_size']:,} bytes",
        f"  image/filename                    bytes  '{row['key']}'",
        "  image/format                      bytes  'png'",
        f"  image/height                      int64  {row['height']}",
    ]
    assert lines[7] == "  image/segmentation/class/format   bytes  'png'"


def crc_of(path: Path) -> str:
    return f"{google_crc32c.value(path.read_bytes()):08x}"


def test_one_record_by_its_key(shown: Path, scenes: Path) -> None:
    shard, row = place_of(shown, "i2.png")
    image, mask = scenes / "i2.png", scenes / "m2.png"
    assert format_record(str(shown), "i2.png").splitlines() == [
        "key       i2.png",
        "split     train",
        f"image     i2.png ({image.stat().st_size:,} bytes, 2023-11-14 22:13:20 UTC, "
        f"crc32c {crc_of(image)})",
        f"mask      m2.png ({mask.stat().st_size:,} bytes, 2023-11-14 22:13:20 UTC, "
        f"crc32c {crc_of(mask)})",
        f"shard     {shard}",
        f"offset    {row['offset']} (of the frame; the data begins 12 bytes behind it)",
        f"length    {row['length']} (of the data; crc32c {row['crc32c']:08x})",
        "size      10×6 (width×height)",
        "class     0 road: 47 pixels, 78.33 %",
        "class     1 sky: 10 pixels, 16.67 %",
        "class     255: 3 pixels, 5.00 %",
    ]


def test_a_rejected_row(shown: Path) -> None:
    lines = format_record(str(shown), "lost.png").splitlines()
    assert lines[:3] == ["key       lost.png", "split     train", "image     lost.png"]
    assert lines[4].startswith("rejected  missing_file: lost.png: there is no such file")


def test_a_record_and_its_rejected_duplicate(shown: Path) -> None:
    text = format_record(str(shown), "i0.png")
    assert text.index("mask      m0.png") < text.index("mask      m1.png")
    assert "rejected  duplicate_key: " in text


def test_an_unknown_key_names_the_nearest(shown: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        format_record(str(shown), "i3.png")
    said, _, near = str(caught.value).partition("; the nearest are ")
    assert said == "no row has the key i3.png"
    assert set(near.split(", ")) == {"i0.png", "i1.png", "i2.png"}


def test_a_key_without_its_folder_is_found(raw: Path) -> None:
    with pytest.raises(ConfigError, match=r"the nearest are images/000007\.jpg"):
        format_record(str(raw), "000007")


def test_a_key_whose_index_is_missing(shown: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(shown, tmp_path / "copy"))
    shard, _ = place_of(shown, "i2.png")
    index = "index/" + shard.replace(".tfrecord", ".parquet")
    (copy / index).unlink()
    with pytest.raises(ConfigError, match=f"no row has the key i2.png.*; {index} can't be read"):
        format_record(str(copy), "i2.png")


@pytest.mark.parametrize("payload", ["raw", "encoded"])
def test_image_and_mask_are_saved(
    payload: str, scenes: Path, shown: Path, shown_encoded: Path, tmp_path: Path
) -> None:
    folder = shown if payload == "raw" else shown_encoded
    saved = tmp_path / "new" / "saved"
    text = format_record(str(folder), "i2.png", save=str(saved))
    assert text.splitlines()[-2:] == [f"wrote     {saved}/i2.png", f"wrote     {saved}/i2-mask.png"]
    assert sorted(path.name for path in saved.iterdir()) == ["i2-mask.png", "i2.png"]
    image, mask = Image.open(saved / "i2.png"), Image.open(saved / "i2-mask.png")
    assert np.array_equal(np.array(image), np.array(Image.open(scenes / "i2.png")))
    assert mask.mode == "P"
    assert np.array_equal(np.array(mask), np.array(Image.open(scenes / "m2.png")))
    palette = mask.getpalette()
    # VOC devkit: background, aeroplane, bicycle, …, the border
    assert palette[:9] == [0, 0, 0, 128, 0, 0, 0, 128, 0]
    assert palette[15 * 3 : 15 * 3 + 3] == [192, 128, 128]
    assert palette[255 * 3 :] == [224, 224, 192]


def test_an_encoded_image_is_saved_as_it_is(encoded: Path, drawn: Path, tmp_path: Path) -> None:
    format_record(str(encoded), "images/000003.jpg", save=str(tmp_path))
    source = (drawn / "images/000003.jpg").read_bytes()
    assert (tmp_path / "images_000003.jpg").read_bytes() == source
    mask = np.array(Image.open(tmp_path / "images_000003-mask.png"))
    assert np.array_equal(mask, np.array(Image.open(drawn / "masks/000003.png")))


def test_nothing_is_overwritten(shown: Path, tmp_path: Path) -> None:
    (tmp_path / "i2-mask.png").write_text("mine")
    with pytest.raises(ConfigError, match=r"i2-mask\.png is there already; it is not overwritten"):
        format_record(str(shown), "i2.png", save=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["i2-mask.png"]


def test_a_rejected_row_has_nothing_to_save(shown: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the row of lost\.png was rejected"):
        format_record(str(shown), "lost.png", save=str(tmp_path))


def test_damage_is_named(raw: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(raw, tmp_path / "copy"))
    shard = data_sets.shard_names(copy)[0]
    key = data_sets.keys_of(copy, shard)[0]
    data = bytearray((copy / shard).read_bytes())
    data[100] ^= 1
    (copy / shard).write_bytes(data)
    damaged = (
        f"{shard} at 0: the CRC of the data \\({len(next(data_sets.read_records(raw / shard)))}"
    )
    with pytest.raises(ConfigError, match=damaged):
        list(format_records(str(copy), 1))
    with pytest.raises(ConfigError, match=damaged):
        format_record(str(copy), key, save=str(tmp_path / "saved"))
    assert shard in format_record(str(copy), key)
    (copy / shard).unlink()
    with pytest.raises(ConfigError, match=f"{shard} is missing; `pairshard verify` says all"):
        list(format_records(str(copy), 1))


def test_another_record_at_the_place(raw: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(raw, tmp_path / "copy"))
    shard = next(
        name for name in data_sets.shard_names(copy) if len(data_sets.keys_of(copy, name)) > 1
    )
    key = data_sets.keys_of(copy, shard)[0]
    data = (copy / shard).read_bytes()
    size = len(data) // len(data_sets.keys_of(copy, shard))
    (copy / shard).write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])
    with pytest.raises(ConfigError, match=f"{shard} at 0: another record stands here"):
        format_record(str(copy), key, save=str(tmp_path / "saved"))


def test_no_data_set(tmp_path: Path) -> None:
    for call in (
        lambda: format_dataset(str(tmp_path)),
        lambda: list(format_records(str(tmp_path), 1)),
        lambda: format_record(str(tmp_path), "k"),
    ):
        with pytest.raises(
            ConfigError, match=r"has no dataset\.json; a data set's folder is meant"
        ):
            call()


def test_a_damaged_dataset_json(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text('{"format_version": 1, "kind": "pairs"}')
    with pytest.raises(ConfigError, match=r"dataset\.json is damaged: KeyError"):
        format_dataset(str(tmp_path))


def test_the_command(run: Run, shown: Path, tmp_path: Path) -> None:
    before = data_sets.look_at(shown)
    assert run("show", shown).out == format_dataset(str(shown)) + "\n"
    assert run("show", shown, "--records", 1).out.count("image_raw") == 1
    ran = run("show", shown, "--key", "i1.png", "--save", tmp_path / "saved")
    assert (ran.status, ran.out.count("wrote     ")) == (0, 2)
    assert data_sets.look_at(shown) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--save", "x"), "--save: --key says which record is meant"),
        (("--key", "i1.png", "--records", 1), "--key and --records: one of them is meant"),
        (("--records", 0), "--records 0: at least 1 is meant"),
        (("--key", "nowhere"), "no row has the key nowhere"),
    ],
)
def test_wrong_use(run: Run, shown: Path, options: tuple[object, ...], said: str) -> None:
    ran = run("show", shown, *options)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_it_loads_neither_beam_nor_tensorflow(shown: Path) -> None:
    code = (
        "import sys; from launch.command import main; "
        f"assert main(['show', {str(shown)!r}, '--key', 'i1.png']) == 0; "
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPO, capture_output=True)
