"""Every reject code, end to end: what is said, where it is listed, and what else is built."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import damage
import data_sets
import numpy as np
import pictures
import pytest
from conftest import Ran, Run

from transforms.core.errors import REJECT_CODES

IMAGE, MASK = "images/000000.jpg", "masks/000000.png"
OPTIONS = ("--classes", 11, "--max-pixels", 5000, "--max-rejects", 99, "--num-shards", 2)
NOT_THERE = (
    "{}: there is no such file below the source root; mend the manifest, or see --source-root "
    "and --replace-prefix"
)
MEND = "Mend the manifest or the file's permissions, or drop the row"
AGAIN = "Fetch or export it again, or drop the row"
WHOLE = f"expected a whole picture of at most 8 bits a sample. {AGAIN}."
IDS = "expected class ids as palette indexes or 8-bit grey, in a lossless format."
OUTSIDE = (
    "'{}': outside the source root; expected a file below it: choose --source-root so that it "
    "holds all files, mend how paths begin with --replace-prefix OLD=NEW, or pass "
    "--allow-outside-root"
)
LINK = (
    "{}: a symbolic link leads out of the source root; copy the file into it, or give "
    "--allow-outside-root"
)
DUPLICATE = (
    "{}: another row with the same key, images/000000.jpg, masks/000000.png, was kept; keys name "
    "one row each. Remove one, or tell them apart in a 'key' column"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A row that is rejected: one of its files is `name`, at fault."""

    name: str
    code: str
    message: str
    is_mask: bool = False

    @property
    def paths(self) -> tuple[str, str]:
        return (IMAGE, self.name) if self.is_mask else (self.name, MASK)

    @property
    def listed(self) -> dict[str, str]:
        """The line of rejects.jsonl."""
        image, mask = self.paths
        entry = {"code": self.code, "message": self.message, "image": image, "mask": mask}
        entry |= {"key": f"key of {self.name}", "split": "train"}
        return entry | {"file": self.name}


CASES = [
    Case(
        "none.jpg",
        "missing_file",
        NOT_THERE.format("none.jpg"),
    ),
    Case(
        "none.png",
        "missing_file",
        NOT_THERE.format("none.png"),
        is_mask=True,
    ),
    Case(
        "images/000001.jpg/x",
        "missing_file",
        NOT_THERE.format("images/000001.jpg/x"),
    ),
    Case(
        "folder",
        "not_readable",
        f"folder: is a folder; a file was expected. {MEND}",
    ),
    Case(
        "pipe.png",
        "not_readable",
        f"pipe.png: is no regular file; a file was expected. {MEND}",
        is_mask=True,
    ),
    Case(
        "loop.jpg",
        "not_readable",
        f"loop.jpg: can't be read: Too many levels of symbolic links. {MEND}",
    ),
    Case(
        "n" * 300,
        "not_readable",
        f"{'n' * 300}: can't be read: File name too long. {MEND}",
    ),
    Case(
        "empty.jpg",
        "empty_file",
        f"empty.jpg: has no bytes; a picture was expected. {AGAIN}",
    ),
    Case(
        "text.jpg",
        "not_an_image",
        "text.jpg begins with b'<html>40', which no format that is opened begins with; expected "
        "JPEG, PNG, BMP, GIF, TIFF, WebP or PPM. Convert the file, or drop the row.",
    ),
    Case(
        "cut.jpg",
        "truncated",
        f"cut.jpg is a JPEG file that ends too early (its end marker is missing); {WHOLE}",
    ),
    Case(
        "flipped.png",
        "corrupt",
        f"flipped.png is a PNG file that is damaged (wrong CRC of chunk b'IDAT'); {WHOLE}",
        is_mask=True,
    ),
    Case(
        "deep.png",
        "unsupported_mode",
        "deep.png is a PNG picture of 16 bits a sample (Pillow's mode I;16), which has no faithful "
        "conversion; expected RGB, grey, palette, CMYK or YCbCr of at most 8 bits. Convert it to "
        "8-bit RGB.",
    ),
    Case(
        "huge.png",
        "too_many_pixels",
        "huge.png declares 60000×60000 = 3600000000 pixels (width×height); expected at most 5000. "
        "Raise --max-pixels if it is a real picture, or drop the row.",
    ),
    Case(
        "frames.gif",
        "multi_frame",
        "frames.gif holds more than one frame; expected one picture. Save the frame that is meant "
        "to a file of its own.",
    ),
    Case(
        "small.png",
        "size_mismatch",
        "images/000000.jpg is 48×36 and its mask small.png is 48×20 (width×height); expected the "
        "same size. Pair the mask with its own image, or make one of the right size.",
        is_mask=True,
    ),
    Case(
        "turned.jpg",
        "size_mismatch",
        "turned.jpg is 36×48 and its mask masks/000000.png is 48×36 (width×height); expected the "
        "same size. The sizes agree once the image's EXIF orientation is applied, which pairshard "
        "does not: save the image turned and without the tag (exiftran -ai, or Pillow's "
        "ImageOps.exif_transpose).",
    ),
    Case(
        "rgb.png",
        "mask_not_indexed",
        f"rgb.png is a PNG mask of colours (Pillow's mode RGB), not of class ids; {IDS} Map each "
        "colour to its class id. Save it as a palette or 8-bit grey PNG.",
        is_mask=True,
    ),
    Case(
        "lossy.jpg",
        "lossy_mask",
        f"lossy.jpg is a JPEG mask with lossy compression, which turns ids into noise; {IDS} "
        "Go back to the lossless original (converting it to PNG keeps the noise). If this is no "
        "mask but a picture, the columns have changed places.",
        is_mask=True,
    ),
    Case(
        "ids.png",
        "class_id_out_of_range",
        "ids.png holds class ids 11 (529 pixels), 77 (433 pixels); expected 0 to 10, or 255 for "
        "pixels to ignore. Mend the mask, or give the right --classes or --ignore-id.",
        is_mask=True,
    ),
    Case(
        "../outside.jpg",
        "path_outside_root",
        OUTSIDE.format("../outside.jpg"),
    ),
    Case(
        "/outside.png",
        "path_outside_root",
        OUTSIDE.format("/outside.png"),
        is_mask=True,
    ),
    Case(
        "link.jpg",
        "path_outside_root",
        LINK.format("link.jpg"),
    ),
    Case(
        "linked/outside.jpg",
        "path_outside_root",
        LINK.format("linked/outside.jpg"),
    ),
]


def spoil(root: Path) -> None:
    """Writes the files of CASES."""
    rgb = pictures.draw_rgb(36, 48)
    ids = pictures.draw_ids(36, 48, (0, 1, 10, 255))
    jpeg = (root / IMAGE).read_bytes()
    palette = pictures.save(ids, "PNG", "P")
    at = palette.index(b"IDAT") + 8
    files = {
        "empty.jpg": b"",
        "text.jpg": b"<html>404 Not Found</html>",
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "flipped.png": palette[:at] + bytes([palette[at] ^ 1]) + palette[at + 1 :],
        "deep.png": pictures.save(rgb[:, :, 0].astype(np.uint16) * 200, "PNG"),
        "huge.png": pictures.write_png(ids, size=(60_000, 60_000)),
        "frames.gif": next(d.data for d in damage.swap(0, mask=False) if d.name == "animation"),
        "small.png": pictures.save(ids[:20], "PNG", "P"),
        "turned.jpg": damage.turn_by_exif(rgb).data,
        "rgb.png": pictures.save(rgb, "PNG"),
        "lossy.jpg": pictures.save(ids, "JPEG"),
        "ids.png": pictures.save(np.where(ids == 1, 77, np.where(ids == 10, 11, ids)), "PNG", "P"),
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe.png")
    (root / "loop.jpg").symlink_to("loop.jpg")
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "outside.jpg").write_bytes(jpeg)
    (root / "link.jpg").symlink_to(outside / "outside.jpg")
    (root / "linked").symlink_to(outside)
    (root / "inside.jpg").symlink_to(IMAGE)  # a link that stays inside is no reject


@pytest.fixture(scope="module")
def spoilt(drawn: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A data set of every reject but those of whole rows and of payloads, and its run."""
    root = Path(shutil.copytree(drawn, tmp_path_factory.mktemp("spoilt") / "sources"))
    spoil(root)
    rows = [(*case.paths, f"key of {case.name}") for case in CASES]
    rows += [(IMAGE, MASK, "good"), ("inside.jpg", MASK, "link"), (IMAGE, MASK, "link")]
    rows += [("images/000001.jpg", MASK, "good"), ("alone",), ("none.jpg", "")]
    manifest = data_sets.write_csv(root / "m.csv", rows, "image,mask,key")
    ran = build(manifest, root.parent / "set", *OPTIONS)
    assert ran.status == 0, ran.err
    return root.parent / "set", ran


def by_name(reject: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(reject.items())


def listed_duplicate(image: str, key: str) -> dict[str, str]:
    entry = {"code": "duplicate_key", "message": DUPLICATE.format(key), "key": key}
    return entry | {"image": image, "mask": MASK, "file": image, "split": "train"}


def listed_bad_row(cells: int, text: str) -> dict[str, str]:
    message = (
        f"the line has {cells} cells, expected 3 as the header has; put a cell that holds a "
        "comma in quotes"
    )
    return {"code": "bad_row", "message": message, "text": text}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:20])
def test_each_reject_is_listed_with_what_was_found_and_what_to_do(case: Case, spoilt):
    found = [r for r in data_sets.read_rejects(spoilt[0]) if r.get("key") == case.listed["key"]]
    assert found == [case.listed]


def test_nothing_else_is_listed(spoilt):
    expected = [case.listed for case in CASES]
    expected += [listed_bad_row(1, "alone"), listed_bad_row(2, "none.jpg,")]
    expected += [listed_duplicate("images/000001.jpg", "good")]
    expected += [listed_duplicate("inside.jpg", "link")]
    found = data_sets.read_rejects(spoilt[0])
    assert sorted(map(by_name, found)) == sorted(map(by_name, expected))
    assert [reject["code"] for reject in found[:2]] == ["bad_row", "bad_row"]
    assert "bad_row" not in {reject["code"] for reject in found[2:]}


def test_the_index_has_every_row_that_has_a_key(spoilt):
    rows = data_sets.read_all_indexes(spoilt[0])
    written = [row["key"] for row in rows if row["status"] == "written"]
    assert sorted(written) == ["good", "link"]
    rejected = {
        (row["key"], row["code"], row["message"], row["file"])
        for row in rows
        if row["status"] == "rejected"
    }
    expected = {(c.listed["key"], c.code, c.message, c.name) for c in CASES}
    for image, key in (("images/000001.jpg", "good"), ("inside.jpg", "link")):
        expected.add((key, "duplicate_key", DUPLICATE.format(key), image))
    assert rejected == expected
    assert len(rows) == len(written) + len(expected)
    for row in rows:
        place = (row["offset"], row["length"], row["height"], row["width"])
        assert (place == (-1, 0, 0, 0)) == (row["status"] == "rejected")


def test_the_run_says_where_each_row_stood(spoilt):
    output, ran = spoilt
    places = data_sets.read_json(output, "run.json")["rejects"]
    lines = {place["line"]: place["code"] for place in places}
    after = len(CASES) + 2
    assert lines == {
        **{number: case.code for number, case in enumerate(CASES, 2)},
        after + 1: "duplicate_key",
        after + 3: "duplicate_key",
        after + 4: "bad_row",
        after + 5: "bad_row",
    }
    manifest = output.parent / "sources" / "m.csv"
    assert {place["manifest"] for place in places} == {str(manifest)}
    assert f"{manifest}:{len(CASES) + 6}: bad_row: the line has 1 cells" in ran.out


def test_every_code_is_reached(spoilt):
    counted = data_sets.read_json(spoilt[0], "dataset.json")["rows"]["rejected"]
    assert set(counted) == set(REJECT_CODES) - {"unsupported_format"}  # see the next test
    assert sum(counted.values()) == len(CASES) + 4


def test_the_encoded_payload_takes_jpeg_and_png_alone(sources: Path, build: Run, tmp_path: Path):
    picture = pictures.draw_rgb(36, 48)
    forms = {"a.bmp": "BMP", "a.gif": "GIF", "a.tif": "TIFF", "a.webp": "WEBP", "a.ppm": "PPM"}
    for name, form in (forms | {"a.png": "PNG", "lies.bmp": "JPEG"}).items():
        (sources / name).write_bytes(pictures.save(picture, form))
    rows = [(name, MASK) for name in (*forms, "a.png", "lies.bmp")]
    manifest = data_sets.write_csv(sources / "m.csv", rows)
    options = ("--payload", "encoded", "--max-rejects", 5)
    assert build(manifest, tmp_path / "encoded", *options).status == 0
    found = {r["file"]: r["message"] for r in data_sets.read_rejects(tmp_path / "encoded")}
    assert found == {
        name: f"{name} is a {form} picture; the encoded payload keeps the file's bytes, and "
        "expected are JPEG or PNG. Use --payload raw, or convert the file to PNG."
        for name, form in forms.items()
    }
    assert build(manifest, tmp_path / "raw").status == 0


def test_a_thumbnails_end_is_not_the_pictures(sources: Path, build: Run, tmp_path: Path):
    small = pictures.save(pictures.draw_rgb(8, 8), "JPEG")
    whole = (sources / IMAGE).read_bytes()
    exif = b"Exif\0\0" + small
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    for name, end in (("whole.jpg", None), ("cut.jpg", -2)):
        (sources / name).write_bytes(whole[:2] + b"\xff" + segment + whole[2:end])
    manifest = data_sets.write_csv(sources / "m.csv", [("whole.jpg", MASK), ("cut.jpg", MASK)])
    assert build(manifest, tmp_path / "set", "--max-rejects", 1).status == 0
    [reject] = data_sets.read_rejects(tmp_path / "set")
    assert (reject["code"], reject["key"]) == ("truncated", "cut.jpg")


def test_links_may_leave_the_root_where_that_is_allowed(spoilt, build: Run, tmp_path: Path):
    root = spoilt[0].parent / "sources"
    outside = str(root.parent / "elsewhere" / "outside.jpg")
    rows = [("link.jpg", MASK), ("linked/outside.jpg", MASK), (outside, MASK)]
    rows += [("../elsewhere/outside.jpg", MASK)]
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows)
    options = ("--allow-outside-root", "--source-root", root, "--max-rejects", 1)
    assert build(manifest, tmp_path / "set", *options).status == 0
    keys = [row["key"] for row in data_sets.read_all_indexes(tmp_path / "set")]
    assert sorted(keys) == sorted(["link.jpg", "linked/outside.jpg", outside, outside])


def test_a_file_without_permission_is_a_reject(sources: Path, build: Run, tmp_path: Path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything: permissions can't be tested")
    (sources / IMAGE).chmod(0)
    ran = build(sources / "pairs.csv", tmp_path / "set")
    assert ran.status == 3
    assert f"not_readable: {IMAGE}: can't be read: Permission denied. {MEND}" in ran.out
