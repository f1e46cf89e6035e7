"""What `pairshard manifest` writes: VOC's ids and the pairs of two folders."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from transforms.core.errors import ConfigError, PlaceError
from transforms.core.listing import Listing, list_dirs, list_voc
from transforms.core.manifest_rows import ManifestOptions
from transforms.core.manifests import format_manifest, read_manifest

PAIRS = Path(__file__).parents[2] / "shared" / "pairs"
IDS = "ImageSets/Segmentation/train.txt"


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def make_voc(root: Path, ids: bytes) -> None:
    touch(root, "JPEGImages/1.jpg", "JPEGImages/2.png", "JPEGImages/3.JPG", "SegmentationClass/1")
    touch(root, IDS)
    (root / IDS).write_bytes(ids)


@pytest.mark.parametrize("ids", [b"3\n1\n2\n4\n", b"\xef\xbb\xbf3\r\n\r\n1 \r\n2\r\n4"])
def test_voc(tmp_path: Path, ids: bytes) -> None:
    make_voc(tmp_path, ids)
    touch(tmp_path, "mine.txt")
    (tmp_path / "mine.txt").write_bytes(ids)
    for name in ("train", "train.txt", str(tmp_path / IDS), IDS, "mine"):
        assert list(list_voc(str(tmp_path), name)) == [
            ("JPEGImages/3.JPG", "SegmentationClass/3.png"),
            ("JPEGImages/1.jpg", "SegmentationClass/1.png"),
            ("JPEGImages/2.png", "SegmentationClass/2.png"),
            ("JPEGImages/4.jpg", "SegmentationClass/4.png"),
        ]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (b"", "holds no ids"),
        (
            b"1\n2 -1\n",
            "line 2 has 2 fields, expected one id; of VOC's lists take those in "
            "ImageSets/Segmentation; a list of pairs is itself a manifest for build",
        ),
        (b"1\n\xe9\n", "is not UTF-8 text; a list of ids is expected"),
    ],
)
def test_voc_refuses_other_lists(tmp_path: Path, ids: bytes, message: str) -> None:
    make_voc(tmp_path, ids)
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / IDS}: {message}")):
        list_voc(str(tmp_path), "train")


def test_voc_refuses_other_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no folder JPEGImages; give the one with"):
        list_voc(str(tmp_path), "train")
    touch(tmp_path, "JPEGImages/1.jpg")
    with pytest.raises(ConfigError, match="has no folder SegmentationClass"):
        list_voc(str(tmp_path), "train")
    touch(tmp_path, "SegmentationClass/1.png")
    with pytest.raises(ConfigError, match="--ids train: no such file"):
        list_voc(str(tmp_path), "train")


def test_dirs(tmp_path: Path) -> None:
    touch(tmp_path, "i/b/x.JPG", "i/b/y.png", "i/é.jpg", "i/a b.v1.jpeg", "i/notes.txt", "i/.z.jpg")
    touch(tmp_path, "m/b/x.png", "m/é.png", "m/a b.v1.png", "m/y.png", "i/.git/c.jpg")
    (tmp_path / "i" / "link").symlink_to(tmp_path / "m")
    assert list_dirs(str(tmp_path / "i"), f"{tmp_path}/./m/") == Listing(
        root=str(tmp_path),
        pairs=(
            ("i/a b.v1.jpeg", "m/a b.v1.png"),
            ("i/b/x.JPG", "m/b/x.png"),
            ("i/é.jpg", "m/é.png"),
        ),
        images_alone=("i/b/y.png",),
        masks_alone=("m/y.png",),
        skipped=("i/.git/", "i/.z.jpg", "i/link/", "i/notes.txt"),
    )


def test_dirs_with_suffixes(tmp_path: Path) -> None:
    touch(tmp_path, "leftImg8bit/rome/1_leftImg8bit.png", "leftImg8bit/rome/2_leftImg8bit.png")
    touch(tmp_path, "gt/rome/1_gt_ids.png", "gt/rome/1_gt_color.png", "gt/rome/1_gt.json")
    images, masks = str(tmp_path / "leftImg8bit"), str(tmp_path / "gt")
    assert list_dirs(images, masks, image_suffix="_leftImg8bit", mask_suffix="_gt_ids") == Listing(
        root=str(tmp_path),
        pairs=(("leftImg8bit/rome/1_leftImg8bit.png", "gt/rome/1_gt_ids.png"),),
        images_alone=("leftImg8bit/rome/2_leftImg8bit.png",),
        masks_alone=(),
        skipped=("gt/rome/1_gt.json", "gt/rome/1_gt_color.png"),
    )


@pytest.mark.parametrize("outer", ["images", "masks"])
def test_one_folder_in_the_other(tmp_path: Path, outer: str) -> None:
    touch(tmp_path, "o/1.png", "o/in/1.png", "o/2.png", "o/x/in/2.png")
    folders = [str(tmp_path / "o"), str(tmp_path / "o" / "in")]
    found = list_dirs(*(folders if outer == "images" else folders[::-1]))
    assert found.root == folders[0]
    assert found.pairs == ((("1.png", "in/1.png") if outer == "images" else ("in/1.png", "1.png")),)
    alone = ("2.png", "x/in/2.png")
    assert (found.images_alone, found.masks_alone) == (
        (alone, ()) if outer == "images" else ((), alone)
    )


def test_one_folder_for_both(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "1_mask.png", "2.png", "3_mask.png", "README")
    folder = str(tmp_path)
    assert list_dirs(folder, folder, mask_suffix="_mask") == Listing(
        folder, (("1.jpg", "1_mask.png"),), ("2.png",), ("3_mask.png",), ("README",)
    )
    with pytest.raises(ConfigError, match="masks in the images' folder need --mask-suffix"):
        list_dirs(folder, folder)


def test_dirs_refuses(tmp_path: Path) -> None:
    touch(tmp_path, "i/a.jpg", "i/a.png", "m/a.png", "n/b.png", "k/c.png")
    i, k, m, n = (str(tmp_path / name) for name in "ikmn")
    with pytest.raises(ConfigError, match=r"'i/a\.jpg' and 'i/a\.png' have the same name but for"):
        list_dirs(i, m)
    with pytest.raises(ConfigError, match=r"of 1 images and 1 masks none have .*'k/c.png'.*'n/b"):
        list_dirs(k, n)
    with pytest.raises(ConfigError, match="nowhere: there is no such folder"):
        list_dirs(i, "nowhere")
    Path(os.fsdecode(os.fsencode(k) + b"/\xff.png")).touch()
    with pytest.raises(ConfigError, match=r"'k/\\udcff\.png': the name is not UTF-8"):
        list_dirs(k, n)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "i/x/a.jpg", "m/a.png")
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("x"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PlaceError, match="x: can't be read: Permission denied"):
        list_dirs(str(tmp_path / "i"), str(tmp_path / "m"))


def test_what_is_listed_is_read(tmp_path: Path) -> None:
    touch(tmp_path, "i/a, b.jpg", "i/c\nd.jpg", 'i/e".jpg', "m/a, b.png", "m/c\nd.png", 'm/e".png')
    listing = list_dirs(str(tmp_path / "i"), str(tmp_path / "m"))
    path = tmp_path / "m.csv"
    path.write_text("".join(format_manifest(listing.pairs, ("image", "mask"))), newline="")
    rows = read_manifest(str(path), ManifestOptions(listing.root))
    assert tuple(row.paths for row in rows) == listing.pairs
    assert len(listing.pairs) == 3


def test_real_voc_and_camvid() -> None:
    if not PAIRS.is_dir():
        pytest.skip(f"the real pairs are not here: {PAIRS}")
    pairs = list(list_voc(str(PAIRS / "voc"), "trainval"))
    assert len(pairs) == 60
    assert pairs[0] == (
        "JPEGImages/0001TP_006690.jpg",
        "SegmentationClass/0001TP_006690.png",
    )
    assert all((PAIRS / "voc" / name).is_file() for pair in pairs for name in pair)
    found = list_dirs(str(PAIRS / "camvid" / "train"), str(PAIRS / "camvid" / "trainannot"))
    assert (len(found.pairs), found.images_alone, found.masks_alone) == (24, (), ())
    voc = list_dirs(str(PAIRS / "voc" / "JPEGImages"), str(PAIRS / "voc" / "SegmentationClass"))
    assert sorted(pairs) == list(voc.pairs)
