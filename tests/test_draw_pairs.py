"""The example's generator: the same pairs whatever the processes, and masks like VOC's."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[1] / "examples" / "draw_pairs.py"


def load_script() -> ModuleType:
    """examples/ is no package: its scripts are loaded by path."""
    spec = importlib.util.spec_from_file_location("draw_pairs", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["draw_pairs"] = module
    spec.loader.exec_module(module)
    return module


draw_pairs = load_script()


def draw(out: Path, *options: str) -> dict[str, bytes]:
    """Runs the script and gives back every file it wrote, by its path under `out`."""
    command = [sys.executable, str(SCRIPT), str(out), *options]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drawn")
    draw(out, "--pairs", "12", "--seed", "3", "--jobs", "1")
    return out


def test_files_depend_on_seed_and_number_alone(drawn: Path, tmp_path: Path) -> None:
    fewer = draw(tmp_path, "--pairs", "5", "--seed", "3", "--jobs", "2")
    assert len(fewer) == 5 * 2 + 2
    for name, content in fewer.items():
        if name != "pairs.csv":
            assert (drawn / name).read_bytes() == content, name
    whole = (drawn / "pairs.csv").read_bytes()
    assert whole.startswith(fewer["pairs.csv"])


def test_draw_pair_is_a_function_of_seed_and_index() -> None:
    image, mask = draw_pairs.draw_pair(3, 7, (96, 64))
    draw_pairs.draw_pair(3, 8, (96, 64))
    image_again, mask_again = draw_pairs.draw_pair(3, 7, (96, 64))
    np.testing.assert_array_equal(image, image_again)
    np.testing.assert_array_equal(mask, mask_again)
    for seed, index in ((3, 8), (4, 7)):
        other_image, other_mask = draw_pairs.draw_pair(seed, index, (96, 64))
        assert (image != other_image).any()
        assert (mask != other_mask).any()


@pytest.mark.parametrize("size", [(480, 360), (97, 61), (32, 200)])
def test_shapes_types_and_ids(size: tuple[int, int]) -> None:
    width, height = size
    image, mask = draw_pairs.draw_pair(0, 0, size)
    assert (image.shape, image.dtype) == ((height, width, 3), np.uint8)
    assert (mask.shape, mask.dtype) == ((height, width), np.uint8)
    assert set(np.unique(mask)) <= {*range(11), 255}


def test_all_classes_and_void_turn_up() -> None:
    seen = {int(i) for index in range(12) for i in np.unique(draw_pairs.draw_pair(3, index)[1])}
    assert seen == {*range(11), 255}


def test_objects_are_parted_by_void() -> None:
    _, mask = draw_pairs.draw_pair(3, 0)
    for first, second in ((mask[:, 1:], mask[:, :-1]), (mask[1:], mask[:-1])):
        differ = first != second
        assert ((first[differ] == 255) | (second[differ] == 255)).all()


def test_masks_are_indexed_with_the_palette_of_voc(drawn: Path) -> None:
    with Image.open(drawn / "masks" / "000000.png") as mask:
        palette = mask.getpalette()
        assert (mask.format, mask.mode, mask.size) == ("PNG", "P", (480, 360))
        np.testing.assert_array_equal(np.array(mask), draw_pairs.draw_pair(3, 0)[1])
    assert palette is not None
    # From the devkit's VOClabelcolormap.m: background, aeroplane, bicycle, tv monitor, void.
    expected = {
        0: [0, 0, 0],
        1: [128, 0, 0],
        2: [0, 128, 0],
        20: [0, 64, 128],
        255: [224, 224, 192],
    }
    assert {i: palette[3 * i : 3 * i + 3] for i in expected} == expected


def test_pictures_are_jpegs_as_heavy_as_real_ones(drawn: Path) -> None:
    paths = sorted((drawn / "images").iterdir())
    with Image.open(paths[0]) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (480, 360))
        assert image.quantization[0][:4] == [2, 1, 1, 2]  # libjpeg's table at quality 95
    mean_size = sum(path.stat().st_size for path in paths) / len(paths)
    assert 55_000 < mean_size < 95_000  # real street scenes at this size and quality: 70,000


def test_quality_and_size_are_options(tmp_path: Path) -> None:
    files = draw(tmp_path, "--pairs", "1", "--size", "64x48", "--quality", "50", "--jobs", "1")
    assert len(files["images/000000.jpg"]) < 4000
    with Image.open(tmp_path / "images" / "000000.jpg") as image:
        assert image.size == (64, 48)


def test_lists(drawn: Path) -> None:
    with (drawn / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0] == {
        "image": "images/000000.jpg",
        "mask": "masks/000000.png",
        "scene": "street-00000",
    }
    assert [row["scene"] for row in rows].count("street-00000") == 10
    assert all((drawn / row[kind]).is_file() for row in rows for kind in ("image", "mask"))
    names = (drawn / "classes.txt").read_text(encoding="utf-8").split("\n")
    assert (names[0], names[10], names[11:]) == ("sky", "lane mark", [""])
