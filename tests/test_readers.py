"""Independent readers find in the shards what `np.array(Image.open(path))` says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import data_sets
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from conftest import PAIRS, Run
from PIL import Image


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, which takes 5 seconds to import: once, and only for the tests that read."""
    return pytest.importorskip("tensorflow")


def shards(folder: Path) -> list[str]:
    return [str(folder / name) for name in data_sets.shard_names(folder)]


def expected_pairs(folder: Path, sources: Path) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
    """Image and mask of the records in their order, opened by Pillow."""
    for row in data_sets.read_all_indexes(folder):
        image, mask = (np.array(Image.open(sources / row[name])) for name in ("image", "mask"))
        yield image, mask, row["image"]


def test_tf_data_parses_raw_records(tf, raw: Path, drawn: Path):
    features = {
        "height": tf.io.FixedLenFeature([], tf.int64),
        "width": tf.io.FixedLenFeature([], tf.int64),
        "image_raw": tf.io.FixedLenFeature([], tf.string),
        "mask_raw": tf.io.FixedLenFeature([], tf.string),
    }

    def parse(record):
        pair = tf.io.parse_single_example(record, features)
        image = tf.reshape(tf.io.decode_raw(pair["image_raw"], tf.uint8), [36, 48, 3])
        mask = tf.reshape(tf.io.decode_raw(pair["mask_raw"], tf.uint8), [36, 48])
        return pair["height"], pair["width"], image, mask

    found = list(tf.data.TFRecordDataset(shards(raw)).map(parse))
    assert len(found) == PAIRS
    for pair, (image, mask, _) in zip(found, expected_pairs(raw, drawn), strict=True):
        assert (pair[0].numpy(), pair[1].numpy()) == (36, 48)
        np.testing.assert_array_equal(pair[2].numpy(), image)
        np.testing.assert_array_equal(pair[3].numpy(), mask)


def test_the_seeds_own_loop_reads_raw_records(tf, raw: Path, drawn: Path):
    expected = expected_pairs(raw, drawn)
    number = 0
    for record in tf.data.TFRecordDataset(shards(raw)):
        example = tf.train.Example.FromString(record.numpy())
        feature = example.features.feature
        assert sorted(feature) == ["height", "image_raw", "mask_raw", "width"]
        height = int(feature["height"].int64_list.value[0])
        width = int(feature["width"].int64_list.value[0])
        image = np.frombuffer(feature["image_raw"].bytes_list.value[0], dtype=np.uint8)
        mask = np.frombuffer(feature["mask_raw"].bytes_list.value[0], dtype=np.uint8)
        wanted = next(expected)
        np.testing.assert_array_equal(image.reshape((height, width, 3)), wanted[0])
        np.testing.assert_array_equal(mask.reshape((height, width)), wanted[1])
        assert example.SerializeToString(deterministic=True) == record.numpy()
        number += 1
    assert number == PAIRS


def read_with_beam(pattern: str, path: Path) -> list[bytes]:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | beam.io.ReadFromTFRecord(pattern)
        _ = records | beam.combiners.ToList() | beam.Map(write_pickled, str(path))
    return pickle.loads(path.read_bytes())


def write_pickled(records: list[bytes], path: str) -> None:
    Path(path).write_bytes(pickle.dumps(records))


def test_beam_reads_raw_records(tf, raw: Path, drawn: Path, tmp_path: Path):
    records = read_with_beam(str(raw / "train-*-of-00004.tfrecord"), tmp_path / "found")
    found = {}
    for record in records:
        feature = tf.train.Example.FromString(record).features.feature
        found[feature["image_raw"].bytes_list.value[0]] = feature["mask_raw"].bytes_list.value[0]
    expected = expected_pairs(raw, drawn)
    assert found == {image.tobytes(): mask.tobytes() for image, mask, _ in expected}
    assert len(records) == len(found) == PAIRS


def test_beam_reads_encoded_records(tf, encoded: Path, drawn: Path, tmp_path: Path):
    records = read_with_beam(str(encoded / "train-*-of-00004.tfrecord"), tmp_path / "found")
    found = {}
    for record in records:
        feature = tf.train.Example.FromString(record).features.feature
        path = feature["image/filename"].bytes_list.value[0].decode()
        mask = feature["image/segmentation/class/encoded"].bytes_list.value[0]
        found[path] = tf.io.decode_png(mask).numpy()[:, :, 0].tobytes()
        assert feature["image/encoded"].bytes_list.value[0] == (drawn / path).read_bytes()
    assert found == {path: mask.tobytes() for _, mask, path in expected_pairs(encoded, drawn)}
    assert len(records) == PAIRS


def test_tf_data_decodes_encoded_records(tf, encoded: Path, drawn: Path):
    names = ("image/encoded", "image/format", "image/filename")
    mask_names = ("image/segmentation/class/encoded", "image/segmentation/class/format")
    numbers = ("image/height", "image/width", "image/channels")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names + mask_names}
    features |= {name: tf.io.FixedLenFeature([], tf.int64) for name in numbers}
    records = tf.data.TFRecordDataset(shards(encoded))
    found = [tf.io.parse_single_example(record, features) for record in records]
    assert len(found) == PAIRS
    for pair, (image, mask, path) in zip(found, expected_pairs(encoded, drawn), strict=True):
        data = pair["image/encoded"]
        assert data.numpy() == (drawn / path).read_bytes()
        seen = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
        np.testing.assert_array_equal(seen, image)
        ids = tf.io.decode_png(pair["image/segmentation/class/encoded"]).numpy()
        np.testing.assert_array_equal(ids, mask[:, :, None])
        assert [int(pair[name]) for name in numbers] == [36, 48, 3]
        texts = [pair[name].numpy() for name in ("image/format", mask_names[1], "image/filename")]
        assert texts == [b"jpeg", b"png", path.encode()]


def test_a_mask_is_ids_to_tensorflow_and_not_colours(tf, encoded: Path, drawn: Path):
    # tensorflow#28256: from the palette PNG itself it decodes grey levels of the colours
    source = np.array(Image.open(drawn / "masks" / "000000.png"))
    colours = tf.io.decode_png((drawn / "masks" / "000000.png").read_bytes(), channels=1).numpy()
    assert (colours[:, :, 0] != source).any()


def test_a_jpeg_whose_end_is_missing_is_no_record(tf, drawn: Path, build: Run, tmp_path: Path):
    """Pillow decodes a JPEG without its last marker; TensorFlow refuses it, in training."""
    whole = (drawn / "images" / "000000.jpg").read_bytes()
    (tmp_path / "mask.png").write_bytes((drawn / "masks" / "000000.png").read_bytes())
    for cut in range(9):
        (tmp_path / f"{cut}.jpg").write_bytes(whole[: len(whole) - cut])
    rows = [(f"{cut}.jpg", "mask.png") for cut in range(9)]
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows)
    options = ("--payload", "encoded", "--max-rejects", 8)
    assert build(manifest, tmp_path / "set", *options).status == 0
    rejects = data_sets.read_rejects(tmp_path / "set")
    assert {(r["key"], r["code"]) for r in rejects} == {
        (f"{n}.jpg", "truncated") for n in range(1, 9)
    }
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_jpeg((tmp_path / "2.jpg").read_bytes())
