"""Real street scenes, as JPEG with palette masks and as PNG with grey ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import data_sets
import numpy as np
import pytest
from conftest import Run
from PIL import Image

from transforms.core.examples import decode_example

VOC_IDS = {*range(11), 255}
CAMVID_IDS = set(range(12))


@pytest.fixture(scope="module")
def voc_manifest(real_pairs: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("voc") / "voc.csv"
    ran = run("manifest", "voc", real_pairs / "voc", "--ids", "trainval", "--output", path)
    assert ran.status == 0, ran.err
    return path


@pytest.fixture(scope="module")
def build_real(
    voc_manifest: Path, real_pairs: Path, build: Run, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Path]:
    """Builds 'voc' or 'camvid' with a payload, each once."""
    camvid = ("--replace-prefix", "/SegNet/CamVid/=", "--classes", 12)
    given = {
        "voc": (voc_manifest, ("--source-root", real_pairs / "voc", "--classes", 11)),
        "camvid": (real_pairs / "camvid" / "train.txt", camvid),
    }

    @functools.cache
    def build_one(name: str, payload: str) -> Path:
        manifest, options = given[name]
        output = tmp_path_factory.mktemp(name) / payload
        ran = build(manifest, output, *options, "--payload", payload, "--num-shards", 2)
        assert ran.status == 0, ran.err
        return output

    return build_one


def read_pairs(folder: Path) -> dict[str, dict]:
    """The features of each record, by its key in the index."""
    found = {}
    for name in data_sets.shard_names(folder):
        records = data_sets.read_records(folder / name)
        for key, record in zip(data_sets.keys_of(folder, name), records, strict=True):
            features = decode_example(record)
            found[key] = {field: feature.values[0] for field, feature in features.items()}
    return found


def class_ids(folder: Path) -> set[int]:
    return set(map(int, data_sets.read_json(folder, "dataset.json")["classes"]))


def check_raw(folder: Path, root: Path, masks: dict[str, str]) -> None:
    pairs = read_pairs(folder)
    assert set(pairs) == set(masks)
    for key, pair in pairs.items():
        shape = (pair["height"], pair["width"])
        assert shape == (360, 480)
        image = np.frombuffer(pair["image_raw"], np.uint8).reshape(*shape, 3)
        mask = np.frombuffer(pair["mask_raw"], np.uint8).reshape(shape)
        np.testing.assert_array_equal(image, np.array(Image.open(root / key)))
        np.testing.assert_array_equal(mask, np.array(Image.open(root / masks[key])))


def check_encoded(folder: Path, root: Path, masks: dict[str, str]) -> None:
    import tensorflow as tf  # noqa: PLC0415 - 5 seconds, which only these tests are to cost

    pairs = read_pairs(folder)
    assert set(pairs) == set(masks)
    for key, pair in pairs.items():
        assert pair["image/encoded"] == (root / key).read_bytes()
        assert pair["image/filename"] == key.encode()
        mask = tf.io.decode_png(pair["image/segmentation/class/encoded"]).numpy()
        expected = np.array(Image.open(root / masks[key]))
        np.testing.assert_array_equal(mask[:, :, 0], expected)


def voc_masks(manifest: Path) -> dict[str, str]:
    return dict(row[:2] for row in data_sets.read_rows(manifest))


def camvid_masks(root: Path) -> dict[str, str]:
    lines = (root / "camvid" / "train.txt").read_text("utf-8").splitlines()
    pairs = (line.replace("/SegNet/CamVid/", "").split() for line in lines)
    return {image: mask for image, mask in pairs}  # noqa: C416 - two, or an error


def test_voc_raw(voc_manifest: Path, real_pairs: Path, build_real):
    folder, masks = build_real("voc", "raw"), voc_masks(voc_manifest)
    assert len(masks) == len(list((real_pairs / "voc" / "JPEGImages").iterdir()))
    check_raw(folder, real_pairs / "voc", masks)
    assert class_ids(folder) <= VOC_IDS


def test_voc_encoded(voc_manifest: Path, real_pairs: Path, build_real):
    folder = build_real("voc", "encoded")
    check_encoded(folder, real_pairs / "voc", voc_masks(voc_manifest))
    assert class_ids(folder) <= VOC_IDS


def test_camvid_raw(real_pairs: Path, build_real):
    folder = build_real("camvid", "raw")
    check_raw(folder, real_pairs / "camvid", camvid_masks(real_pairs))
    assert class_ids(folder) <= CAMVID_IDS


def test_camvid_encoded(real_pairs: Path, build_real):
    folder = build_real("camvid", "encoded")
    check_encoded(folder, real_pairs / "camvid", camvid_masks(real_pairs))
    assert class_ids(folder) <= CAMVID_IDS


def test_without_the_prefix_replaced_every_row_is_outside(real_pairs: Path, build: Run, tmp_path):
    ran = build(real_pairs / "camvid" / "train.txt", tmp_path / "set")
    assert ran.status == 3
    rejects = data_sets.read_rejects(tmp_path / "set")
    assert {reject["code"] for reject in rejects} == {"path_outside_root"}
    assert len(rejects) == len(camvid_masks(real_pairs))


def test_other_ids_than_the_classes_are_named(real_pairs: Path, build: Run, tmp_path: Path):
    given = ("--replace-prefix", "/SegNet/CamVid/=", "--classes", 11)
    ran = build(real_pairs / "camvid" / "train.txt", tmp_path / "set", *given)
    assert ran.status == 3
    messages = [reject["message"] for reject in data_sets.read_rejects(tmp_path / "set")]
    assert all("holds class id 11 (" in message for message in messages)
    assert all("expected 0 to 10, or 255 for pixels to ignore" in message for message in messages)


@pytest.mark.parametrize("name", ["voc", "camvid"])
@pytest.mark.parametrize("payload", ["raw", "encoded"])
def test_verification_agrees(name: str, payload: str, verify_here, build_real, run: Run):
    folder = build_real(name, payload)
    ran = run("verify", folder, "--all")
    assert ran.status == 0, ran.out
    number = data_sets.read_json(folder, "dataset.json")["rows"]["written"]
    assert f"{number} records read back, {number} compared with their sources, 0 wrong" in ran.out
