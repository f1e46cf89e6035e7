"""Every rule of the design's section "Pictures and masks", with the values written out."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import warnings

import damage
import numpy as np
import pictures
import pytest
from pictures import draw_ids, draw_rgb, save, write_bmp, write_chunk, write_png, write_tiff
from PIL import Image as PilImage

from transforms.core import containers, images
from transforms.core.errors import REJECT_CODES, DataError

# Of odd TIFFs Pillow warns; pytest sets up filters of its own, so ours do not hold here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(Corrupt EXIF|Truncated File|Metadata Warning):UserWarning"
)
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAIRS = ROOT.parent / "shared" / "pairs"
LIMIT = 10_000_000
RGB = draw_rgb(33, 50)
IDS = draw_ids(33, 50, (0, 1, 2, 15, 20, 255))
NEAR = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], np.uint8)


def image_of(data: bytes) -> np.ndarray:
    got = images.decode_image(data, "a/b.png", max_pixels=LIMIT)
    bare = images.decode_image(data, "a/b.png", max_pixels=LIMIT, pixels=False)
    assert (bare.height, bare.width, bare.pixels, bare.format) == (
        got.height,
        got.width,
        b"",
        got.format,
    )
    assert images.read_size(data) == images.read_size(io.BytesIO(data)) == (got.height, got.width)
    return np.frombuffer(got.pixels, np.uint8).reshape(got.height, got.width, 3)


def mask_of(data: bytes) -> np.ndarray:
    got = images.decode_mask(data, "a/b.png", max_pixels=LIMIT)
    bare = images.decode_mask(data, "a/b.png", max_pixels=LIMIT, ids=False)
    ids = np.frombuffer(got.ids, np.uint8).reshape(got.height, got.width)
    found, counts = np.unique(ids, return_counts=True)
    expected = tuple(zip(found.tolist(), counts.tolist(), strict=True))
    assert got.pixel_counts == bare.pixel_counts == expected
    assert bare.ids == b""
    return ids


def by_pillow(data: bytes, mode: str = "RGB") -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array(PilImage.open(io.BytesIO(data)).convert(mode))


def refused(decode, data: bytes, **options: int) -> DataError:
    with pytest.raises(DataError) as caught:
        decode(data, "a/b.png", **({"max_pixels": LIMIT} | options))
    error = caught.value
    assert error.code in REJECT_CODES
    assert error.path == "a/b.png"
    assert error.message.startswith("a/b.png ")
    assert "expected" in error.message
    assert not re.search(r"0x[0-9a-f]{6}|BytesIO|/tmp|\n", error.message)
    return error


def refused_image(data: bytes, **options: int) -> DataError:
    return refused(images.decode_image, data, **options)


def refused_mask(data: bytes, **options: int) -> DataError:
    return refused(images.decode_mask, data, **options)


# ---- images that are converted

LOSSLESS = {
    "png": save(RGB, "PNG"),
    "bmp": save(RGB, "BMP"),
    "tiff": save(RGB, "TIFF"),
    "webp": save(RGB, "WEBP", lossless=True),
    "ppm": save(RGB, "PPM"),
}


@pytest.mark.parametrize("form", LOSSLESS)
def test_lossless_formats_give_the_pixels_written(form):
    assert images.decode_image(LOSSLESS[form], "lies.jpg", max_pixels=LIMIT).format == form
    np.testing.assert_array_equal(image_of(LOSSLESS[form]), RGB)


CONVERTED = {
    "jpeg": save(RGB, "JPEG", quality=95),
    "jpeg-progressive": save(RGB, "JPEG", progressive=True),
    "jpeg-grey": save(RGB, "JPEG", "L"),
    "jpeg-cmyk": save(RGB, "JPEG", "CMYK"),
    "jpeg-exif-turned": pictures.write_rotated_jpeg(RGB),
    "png-1": save(RGB, "PNG", "1"),
    "png-l": save(RGB, "PNG", "L"),
    "png-la": save(RGB, "PNG", "LA"),
    "png-rgba": save(np.dstack([RGB, RGB[:, :, :1]]), "PNG"),
    "png-p": save(IDS, "PNG", "P"),
    "png-p-one-transparent": save(IDS, "PNG", "P", transparency=2),
    "png-p-all-transparent": save(IDS, "PNG", "P", transparency=bytes(range(256))),
    "png-rgb-transparent": save(RGB, "PNG", transparency=(0, 0, 0)),
    "png-grey-4": write_png(NEAR, bits=4),
    "png-p-2": write_png(NEAR, bits=2, colour_type=3),
    "gif": save(IDS, "GIF", "P"),
    "gif-transparent": save(IDS, "GIF", "P", transparency=0),
    "tiff-cmyk": save(RGB, "TIFF", "CMYK"),
    "tiff-lzw": save(RGB, "TIFF", compression="tiff_lzw"),
    "tiff-ycbcr-jpeg": save(RGB, "TIFF", compression="jpeg"),
    "tiff-white-is-zero": write_tiff(NEAR.tobytes(), (2, 4), (8,), 0),
    "tiff-turned": save(RGB, "TIFF", tiffinfo={274: 6}),
    "webp-rgba": save(np.dstack([RGB, RGB[:, :, :1]]), "WEBP", lossless=True),
    "webp-lossy": save(RGB, "WEBP"),
    "ppm-grey": save(RGB, "PPM", "L"),
    "ppm-maximum-15": b"P5 4 2 15\n" + NEAR.tobytes(),
    "pbm": b"P4 8 2\n\xa5\x0f",
    "ppm-plain": b"P3 # words\n2 1 255\n1 2 3 250 251 252\n",
    "bmp-4-bit": write_bmp(b"\x01\x23\0\0\x32\x10\0\0", (2, 4), 4, list(range(0, 48, 3))),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_images_equal_pillows_rgb(case, recwarn):
    np.testing.assert_array_equal(image_of(CONVERTED[case]), by_pillow(CONVERTED[case]))
    assert not recwarn.list


def test_alpha_is_dropped_and_not_blended():
    rgba = np.array([[[10, 20, 30, 0], [40, 50, 60, 128]]], np.uint8)
    expected = [[[10, 20, 30], [40, 50, 60]]]
    assert image_of(save(rgba, "PNG")).tolist() == expected
    assert image_of(save(rgba, "TIFF")).tolist() == expected
    assert image_of(save(rgba[:, :, 1:3], "PNG")).tolist() == [[[20] * 3, [50] * 3]]


def test_palettes_become_their_colours_with_or_without_transparency():
    colours = {0: [0, 0, 0], 1: [128, 0, 0], 2: [0, 128, 0], 3: [128, 128, 0]}
    expected = [[colours[i] for i in row] for row in NEAR.tolist()]
    seen_through = write_chunk(b"tRNS", b"\x80\x00\xff")
    for bits in (2, 4, 8):
        plain = write_png(NEAR, bits=bits, colour_type=3)
        # tRNS stands behind PLTE (PNG 3rd ed. 5.6)
        at = plain.index(b"IDAT") - 4
        assert image_of(plain).tolist() == expected
        assert image_of(plain[:at] + seen_through + plain[at:]).tolist() == expected


@pytest.mark.parametrize("shape", [(33, 50), (1, 1), (5, 3), (8, 1), (2, 4)])
def test_interlaced_is_read(shape):
    rgb, ids = draw_rgb(*shape), draw_rgb(*shape)[:, :, 0] % 2
    np.testing.assert_array_equal(image_of(write_png(rgb, colour_type=2, interlace=1)), rgb)
    for bits in (1, 2, 4, 8):
        png = write_png(ids, bits=bits, colour_type=3, interlace=1)
        np.testing.assert_array_equal(mask_of(png), ids)


def test_of_a_mpo_the_first_picture_is_read():
    frames = [PilImage.fromarray(RGB), PilImage.fromarray(255 - RGB)]
    out = io.BytesIO()
    frames[0].save(out, "MPO", save_all=True, append_images=frames[1:])
    assert PilImage.open(out).n_frames == 2
    assert images.decode_image(out.getvalue(), "a", max_pixels=LIMIT).format == "jpeg"
    np.testing.assert_array_equal(image_of(out.getvalue()), by_pillow(out.getvalue()))
    assert refused_mask(out.getvalue()).code == "lossy_mask"


def test_exif_orientation_does_not_turn():
    assert image_of(pictures.write_rotated_jpeg(RGB, 6)).shape == (33, 50, 3)


DEEP = np.array([[0, 1000, 65535]], np.uint16)
UNSUPPORTED = {
    "png-16-grey": write_png(DEEP, bits=16),
    "png-16-rgb": write_png(np.dstack([DEEP] * 3), bits=16, colour_type=2),
    "png-16-la": write_png(np.dstack([DEEP] * 2), bits=16, colour_type=4),
    "png-16-rgba": write_png(np.dstack([DEEP] * 4), bits=16, colour_type=6),
    "png-16-interlaced": write_png(np.dstack([DEEP] * 3), bits=16, colour_type=2, interlace=1),
    "tiff-16-grey": save(DEEP, "TIFF"),
    "tiff-16-rgb": write_tiff(bytes(18), (1, 3), (16, 16, 16), 2),
    "tiff-float": save(DEEP.astype(np.float32), "TIFF"),
    "tiff-int32": save(DEEP.astype(np.int32), "TIFF"),
    "tiff-lab": write_tiff(bytes(3), (1, 1), (8, 8, 8), 8),
    "tiff-float64": write_tiff(bytes(24), (1, 3), (64,), 1, t339=3),
    "ppm-maximum-1000": b"P6 1 1 1000\n" + bytes(6),
    "ppm-maximum-65535": b"P6 1 1 65535\n" + bytes(6),
    "pgm-16": b"P5 1 1 65535\n" + bytes(2),
    "pfm": b"Pf 1 1 -1.0\n" + bytes(4),
    "bmp-4-bit-grey": write_bmp(b"\x01\x23\0\0" * 2, (2, 4), 4, [i * 0x10101 for i in range(16)]),
    "bmp-8-bit-of-2": write_bmp(b"\0\1\0\1" * 2, (2, 4), 8, [0, 0xFFFFFF], 2),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_modes_without_a_faithful_conversion_are_refused(case):
    error = refused_image(UNSUPPORTED[case])
    assert error.code == "unsupported_mode"
    assert "Convert it to 8-bit RGB" in error.message
    assert refused_mask(UNSUPPORTED[case]).code == "unsupported_mode"


def test_12_bit_jpeg_is_an_unsupported_mode():
    data = save(RGB, "JPEG")
    at = data.index(b"\xff\xc0") + 4
    assert refused_image(data[:at] + b"\x0c" + data[at + 1 :]).code == "unsupported_mode"


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "PNG"])
def test_several_frames_are_refused(form):
    frames = [PilImage.fromarray(RGB), PilImage.fromarray(255 - RGB)]
    out = io.BytesIO()
    frames[0].save(out, form, save_all=True, append_images=frames[1:])
    assert refused_image(out.getvalue()).code == "multi_frame"
    assert refused_mask(out.getvalue()).code == "multi_frame"


def test_an_apng_of_one_frame_is_a_picture():
    np.testing.assert_array_equal(mask_of(pictures.write_apng(1)), draw_ids(8, 8, (1, 2)))
    assert refused_mask(pictures.write_apng(2)).code == "multi_frame"


# ---- masks

MASKS = {
    "png-p": save(IDS, "PNG", "P"),
    "png-p-transparent": save(IDS, "PNG", "P", transparency=bytes(range(256))),
    "png-p-interlaced": write_png(IDS, colour_type=3, interlace=1, palette=bytes(768)),
    "png-p-split": write_png(IDS, colour_type=3, palette=bytes(768), split=7),
    "png-l": save(IDS, "PNG"),
    "png-l-interlaced": write_png(IDS, interlace=1),
    "bmp-p": save(IDS, "BMP", "P"),
    "bmp-l": save(IDS, "BMP"),
    "gif-p": save(IDS, "GIF", "P", optimize=False),
    "gif-l": save(IDS, "GIF", "L", optimize=False),
    "tiff-p": save(IDS, "TIFF", "P"),
    "tiff-l": save(IDS, "TIFF"),
    "tiff-lzw": save(IDS, "TIFF", "P", compression="tiff_lzw"),
    "ppm-l": save(IDS, "PPM"),
}


@pytest.mark.parametrize("case", MASKS)
def test_masks_hold_the_ids_written(case):
    np.testing.assert_array_equal(mask_of(MASKS[case]), IDS)
    np.testing.assert_array_equal(np.array(PilImage.open(io.BytesIO(MASKS[case]))), IDS)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palette_masks_of_few_bits_hold_indexes(bits):
    ids = NEAR & (1 << bits) - 1
    assert mask_of(write_png(ids, bits=bits, colour_type=3)).tolist() == ids.tolist()


RESCALED = {
    "png-1": write_png(NEAR % 2, bits=1),
    "png-2": write_png(NEAR, bits=2),
    "png-4": write_png(NEAR, bits=4),
    "png-4-interlaced": write_png(NEAR, bits=4, interlace=1),
    "bmp-1": save(NEAR, "BMP", "1"),
    "tiff-1": save(NEAR, "TIFF", "1"),
    "tiff-2": write_tiff(b"\x1b\xe4", (2, 4), (2,), 1),
    "tiff-4": write_tiff(b"\x01\x23\x32\x10", (2, 4), (4,), 1),
    "tiff-white-is-zero": write_tiff(NEAR.tobytes(), (2, 4), (8,), 0),
    "pgm-15": b"P5 4 2 15\n" + NEAR.tobytes(),
    "pgm-200": b"P5 4 2 200\n" + NEAR.tobytes(),
    "pgm-plain-15": b"P2 4 2 15\n0 1 2 3 3 2 1 0\n",
    "pbm": b"P4 4 2\n\x50\xa0",
}


@pytest.mark.parametrize("case", RESCALED)
def test_grey_masks_that_decoders_rescale_are_refused(case):
    error = refused_mask(RESCALED[case])
    assert error.code == "unsupported_mode"
    assert "4-bit ids 0, 1, 2, 15 come back as 0, 17, 34, 255" in error.message
    assert "palette or 8-bit grey PNG" in error.message
    assert np.array(PilImage.open(io.BytesIO(RESCALED[case]))).tolist() != NEAR.tolist()
    np.testing.assert_array_equal(image_of(RESCALED[case]), by_pillow(RESCALED[case]))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_masks_of_colours_are_refused(mode):
    error = refused_mask(save(RGB, "PNG", mode))
    assert error.code == "mask_not_indexed"
    assert f"of colours (Pillow's mode {mode}), not of class ids" in error.message


LOSSY = {
    "jpeg": save(IDS, "JPEG"),
    "webp": save(RGB, "WEBP"),
    "webp-alpha": save(np.dstack([RGB, RGB[:, :, :1]]), "WEBP"),
    "tiff-jpeg": save(IDS, "TIFF", compression="jpeg"),
}


@pytest.mark.parametrize("case", LOSSY)
def test_lossy_masks_are_refused(case):
    assert refused_mask(LOSSY[case]).code == "lossy_mask"


def test_a_lossless_webp_mask_holds_colours():
    assert refused_mask(save(RGB, "WEBP", lossless=True)).code == "mask_not_indexed"
    rgba = np.dstack([RGB, RGB[:, :, :1]])
    extended = save(rgba, "WEBP", lossless=True, exif=b"Exif\0\0" + bytes(20))
    assert extended[12:16] == b"VP8X"
    assert refused_mask(extended).code == "mask_not_indexed"


# ---- damage

SOURCES = {
    "jpeg": (save(RGB, "JPEG", quality=95), False),
    "jpeg-progressive": (save(RGB, "JPEG", progressive=True), False),
    "png": (save(RGB, "PNG"), False),
    "palette-mask": (save(IDS, "PNG", "P"), True),
    "palette-mask-of-many-chunks": (
        write_png(IDS, colour_type=3, palette=bytes(768), split=50),
        True,
    ),
    "grey-mask": (save(IDS, "PNG"), True),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_refused_with_its_code(source, seed):
    data, mask = SOURCES[source]
    whole = (mask_of if mask else image_of)(data)
    partner = images.Mask(*whole.shape[:2], b"", (), "png")
    for case in damage.damages(data, seed, mask=mask):
        try:
            got = (
                images.decode_image(case.data, "a/b.png", max_pixels=LIMIT)
                if not mask
                else (images.decode_mask(case.data, "a/b.png", max_pixels=LIMIT))
            )
            if not mask:
                images.check_sizes(got, partner, case.data, "a/b.png", "c.png")
        except DataError as error:
            assert error.code in case.codes, (case.name, error)
        else:  # only a JPEG has no checksum
            assert case.may_pass, case.name
            np.testing.assert_array_equal(image_of(case.data), by_pillow(case.data))


def test_damage_is_the_same_for_the_same_seed():
    data = SOURCES["png"][0]
    first, again = (list(damage.damages(data, 3, mask=False)) for _ in range(2))
    assert first == again
    assert first != list(damage.damages(data, 4, mask=False))


def test_every_bit_of_a_png_counts():
    data = write_png(NEAR, colour_type=3)
    for at in range(len(data)):
        for bit in range(8):
            broken = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            assert refused_mask(broken).code in damage.BROKEN


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "BMP", "PPM"])
def test_other_formats_cut_off_are_refused(form, capfd):
    options = {"compression": "tiff_lzw"} if form == "TIFF" else {}
    whole = save(RGB, form, **options)
    for tenth in range(1, 10):
        error = refused_image(whole[: len(whole) * tenth // 10])
        assert error.code in ("truncated", "corrupt"), tenth
        assert form == "TIFF" or error.code == "truncated"
    if form != "TIFF":  # libtiff writes to stderr, and Pillow has no switch for it
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "BMP", "PPM", "JPEG", "PNG"])
def test_no_other_exception_leaves_whatever_the_bytes(form):
    rng = np.random.default_rng(1)
    whole = np.frombuffer(save(RGB, form), np.uint8)
    for _ in range(150):
        broken = whole.copy()
        places = rng.integers(0, min(len(broken), 300), 4)
        broken[places] = rng.integers(0, 256, 4)
        for decode in (images.decode_image, images.decode_mask):
            try:
                decode(broken.tobytes(), "a/b.png", max_pixels=100_000)
            except DataError as error:
                assert error.message.startswith("a/b.png ")


def test_the_stream_of_a_png_must_hold_all_rows():
    short = write_png(IDS[:20], size=IDS.shape)
    assert np.array(PilImage.open(io.BytesIO(short)))[-1].tolist() == [0] * 50  # Pillow's zeros
    assert refused_mask(short).code == "truncated"
    black = np.zeros((5, 7), np.uint8)
    np.testing.assert_array_equal(mask_of(write_png(black)), black)
    np.testing.assert_array_equal(mask_of(write_png(black, interlace=1)), black)
    whole = write_png(IDS, interlace=1)
    raw = pictures.zlib.decompress(whole[41:])[:-60]  # the last odd row and its filter are 51
    cut = whole[:33] + write_chunk(b"IDAT", pictures.zlib.compress(raw)) + whole[-12:]
    assert refused_mask(cut).code == "truncated"


def test_png_without_palette_or_data_is_corrupt():
    whole = write_png(NEAR, colour_type=3)
    palette = whole[whole.index(b"PLTE") - 4 : whole.index(b"IDAT") - 4]
    assert "no chunk b'PLTE'" in refused_mask(whole.replace(palette, b"")).message
    stream = whole[whole.index(b"IDAT") - 4 : whole.index(b"IEND") - 4]
    assert "no chunk b'IDAT'" in refused_mask(whole.replace(stream, b"")).message
    assert refused_mask(write_png(NEAR, size=(0, 4))).code == "corrupt"


def test_not_an_image_says_how_the_file_begins():
    error = refused_image(b"<html>not found</html>")
    assert error.code == "not_an_image"
    assert "begins with b'<html>no'" in error.message
    for data in (b"\0\0\0\x0cftypavif" + bytes(40), b"%PDF-1.7", b"BMW", b"P5", b"RIFF....WAVE"):
        assert refused_image(data).code == "not_an_image"
    assert refused_image(b"").code == "empty_file"


def test_too_many_pixels_is_judged_from_the_header():
    for data in (*LOSSLESS.values(), SOURCES["jpeg"][0]):
        error = refused_image(data, max_pixels=33 * 50 - 1)
        assert error.code == "too_many_pixels"
        assert "50×33 = 1650 pixels" in error.message and "at most 1649" in error.message
        images.decode_image(data, "a", max_pixels=33 * 50)


def test_bombs_cost_no_memory():
    code = (
        "import resource, damage, pictures\n"
        "from transforms.core import images, errors\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "bombs = [b.data for b in damage.declare() if b.name.endswith('bomb')]\n"
        "bombs.append(pictures.write_apng(1, dispose=1, size=(60000, 60000)))\n"
        "tile = dict(t322=30000, t323=30000, t324=8, t325=64)\n"
        "bombs.append(pictures.write_tiff(bytes(64), (8, 8), (8,), 1, **tile))\n"
        "before = peak()\n"
        "for data in bombs:\n"
        "    try: images.decode_mask(data, 'a', max_pixels=10**8)\n"
        "    except errors.DataError as error: print(error.code)\n"
        "print(peak() - before)"
    )
    env = dict(os.environ, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    *codes, grown = run.stdout.split()
    assert codes == ["too_many_pixels"] * 7
    assert int(grown) < 20


def test_compressed_text_in_a_png_is_bounded():
    words = pictures.zlib.compress(bytes(50_000_000), 9)
    bomb = write_png(NEAR, before=write_chunk(b"zTXt", b"words\0\0" + words))
    assert refused_mask(bomb).code == "corrupt"


def test_failing_memory_is_no_reject(monkeypatch):
    def fail(_file):
        raise MemoryError

    monkeypatch.setitem(images._OPENERS, "png", fail)
    with pytest.raises(MemoryError):
        images.decode_image(LOSSLESS["png"], "a", max_pixels=LIMIT)


def test_a_data_error_survives_pickling():
    error = refused_image(SOURCES["png"][0][:100])
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.message, again.path) == (error.code, error.message, error.path)
    assert again.code == "truncated"


# ---- checks


def test_check_classes_names_ids_and_pixels():
    mask = images.Mask(1, 9, b"", ((0, 3), (11, 1), (12, 4), (255, 1)), "png")
    images.check_classes(mask, "m.png", num_classes=None, ignore_id=255)
    images.check_classes(mask, "m.png", num_classes=13, ignore_id=255)
    with pytest.raises(DataError) as caught:
        images.check_classes(mask, "m.png", num_classes=11, ignore_id=255)
    assert caught.value.code == "class_id_out_of_range"
    assert caught.value.message == (
        "m.png holds class ids 11 (1 pixel), 12 (4 pixels); expected 0 to 10, or 255 for pixels "
        "to ignore. Mend the mask, or give the right --classes or --ignore-id."
    )
    with pytest.raises(DataError, match=r"holds class id 255 \(1 pixel\)"):
        images.check_classes(mask, "m.png", num_classes=13, ignore_id=254)


def test_check_sizes():
    mask = images.Mask(50, 33, b"", (), "png")
    plain, turned = save(RGB, "JPEG"), pictures.write_rotated_jpeg(RGB, 6)
    image = images.decode_image(plain, "i.jpg", max_pixels=LIMIT)
    images.check_sizes(image, images.Mask(33, 50, b"", (), "png"), plain, "i.jpg", "m.png")
    for data, says in ((plain, False), (turned, True)):
        with pytest.raises(DataError) as caught:
            images.check_sizes(image, mask, data, "i.jpg", "m.png")
        assert caught.value.code == "size_mismatch"
        assert caught.value.message.startswith(
            "i.jpg is 50×33 and its mask m.png is 33×50 (width×height); expected the same size."
        )
        assert ("EXIF orientation is applied" in caught.value.message) is says
    other = images.Mask(50, 34, b"", (), "png")
    with pytest.raises(DataError) as caught:
        images.check_sizes(image, other, turned, "i.jpg", "m.png")
    assert "EXIF" not in caught.value.message


def test_a_picture_turned_by_exif_is_a_size_mismatch():
    case = damage.turn_by_exif(RGB)
    image = images.decode_image(case.data, "i.jpg", max_pixels=LIMIT)
    with pytest.raises(DataError, match="EXIF orientation") as caught:
        images.check_sizes(image, images.Mask(33, 50, b"", (), "png"), case.data, "i", "m")
    assert {caught.value.code} == case.codes


def test_check_encodable():
    for form in ("jpeg", "png"):
        images.check_encodable(images.Image(1, 1, b"", form), "i")
    for form in ("bmp", "gif", "tiff", "webp", "ppm"):
        with pytest.raises(
            DataError, match=f"is a {form.upper()} picture.*--payload raw"
        ) as caught:
            images.check_encodable(images.Image(1, 1, b"", form), "i")
        assert caught.value.code == "unsupported_format"


# ---- the encoded payload's masks

ENCODED = MASKS | {
    f"png-p-{bits}-{'interlaced' if interlace else 'plain'}": write_png(
        NEAR % (1 << bits), bits=bits, colour_type=3, interlace=interlace
    )
    for bits in (1, 2, 4)
    for interlace in (0, 1)
}


@pytest.mark.parametrize("case", ENCODED)
@pytest.mark.parametrize("ids", [True, False])
def test_encoded_masks_are_grey_pngs_of_the_ids(case, ids):
    data = ENCODED[case]
    mask = images.decode_mask(data, "m", max_pixels=LIMIT, ids=ids)
    encoded = images.encode_mask_png(data, mask)
    assert encoded[24:26] == b"\x08\x00"
    decoded = PilImage.open(io.BytesIO(encoded))
    decoded.load()
    assert decoded.mode == "L" and "transparency" not in decoded.info
    np.testing.assert_array_equal(np.array(decoded), np.array(PilImage.open(io.BytesIO(data))))
    again = images.decode_mask(encoded, "m", max_pixels=LIMIT)
    assert again.pixel_counts == mask.pixel_counts
    assert images.encode_mask_png(encoded, again) == encoded


def test_8_bit_masks_are_not_compressed_anew():
    def streams(png: bytes) -> bytes:
        return png[png.index(b"IDAT") - 4 : png.index(b"IEND") - 4]

    grey, palette = MASKS["png-l"], MASKS["png-p-split"]
    assert images.encode_mask_png(grey, images.decode_mask(grey, "m", max_pixels=LIMIT)) == grey
    mask = images.decode_mask(palette, "m", max_pixels=LIMIT)
    encoded = images.encode_mask_png(palette, mask)
    assert streams(encoded) == streams(palette)
    assert encoded == write_png(IDS, split=7)


@pytest.mark.slow
def test_tensorflow_reads_the_ids():
    tf = pytest.importorskip("tensorflow")
    for data in ENCODED.values():
        mask = images.decode_mask(data, "m", max_pixels=LIMIT)
        grey = tf.io.decode_png(images.encode_mask_png(data, mask), channels=1).numpy()
        assert grey.shape == (mask.height, mask.width, 1)
        assert grey.tobytes() == mask.ids
    colours = tf.io.decode_png(MASKS["png-p"], channels=1).numpy()[:, :, 0]
    assert (colours != IDS).any()  # the reason for all this


# ---- the rest


def test_threads_give_the_same_as_one():
    jobs = [(data, image_of(data).tobytes()) for data in (*LOSSLESS.values(), *CONVERTED.values())]
    wrong: list[int] = []

    def work() -> None:
        for i, (data, expected) in enumerate(jobs * 5):
            if images.decode_image(data, "a", max_pixels=LIMIT).pixels != expected:
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_pictures_are_packed_whole():
    rgb = draw_rgb(1024, 2048)
    np.testing.assert_array_equal(image_of(save(rgb, "PPM")), rgb)


def test_read_size_reads_the_header_only():
    for data in (*LOSSLESS.values(), SOURCES["jpeg"][0]):
        assert images.read_size(data) == (33, 50)
    assert images.read_size(SOURCES["png"][0][:40]) == (33, 50)
    assert images.read_size(SOURCES["jpeg"][0][:700]) == (33, 50)
    assert images.read_size(pictures.write_gif((65535, 65535), (9, 9), 2)) == (65535, 65535)
    with pytest.raises(DataError, match="not_an_image"):
        images.read_size(b"words")


class Counting(io.BytesIO):
    """Counts the bytes that are read."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "JPEG", "BMP", "PPM"])
def test_read_size_reads_no_more_of_a_long_file(form):
    file = Counting(save(RGB, form) + bytes(8 << 20))
    assert images.read_size(file) == (33, 50)
    assert file.taken <= 1 << 16


def test_read_size_reads_farther_for_a_long_jpeg_header():
    plain = save(RGB, "JPEG")
    segment = b"\xff\xe2\xff\xff" + bytes(65533)
    file = Counting(plain[:2] + segment * 8 + plain[2:] + bytes(8 << 20))
    assert images.read_size(file) == (33, 50)
    assert file.taken <= 3 << 19


def test_a_gif_whose_frame_begins_far_behind_has_its_screens_size():
    whole = pictures.write_gif((40, 30), (50, 33))
    comment = b"!\xfe" + (b"\xff" + bytes(255)) * 300 + b"\0"
    at = 13 + (3 << (whole[10] & 7) + 1 if whole[10] & 128 else 0)
    late = whole[:at] + comment + whole[at:]
    assert images.read_size(whole) == (50, 33)
    assert images.read_size(late) == (40, 30)
    assert containers.check_gif(late, "a") == containers.check_gif(whole, "a")


def test_junk_between_a_gifs_blocks_is_passed_over_up_to_a_limit():
    whole = save(IDS, "GIF", "P", optimize=False)
    at = 13 + (3 << (whole[10] & 7) + 1)
    np.testing.assert_array_equal(mask_of(whole[:at] + bytes(1 << 16) + whole[at:]), IDS)
    pieces = (bytes(1000) + b"!\xfe\0") * 66  # little each time, much in all
    for junk in (bytes((1 << 16) + 1), bytes(64 << 20), pieces):
        error = refused_mask(whole[:at] + junk + whole[at:])
        assert error.code == "corrupt" and "between its blocks" in error.message
    assert refused_mask(whole[:-1] + bytes(64 << 20)).code == "corrupt"
    assert refused_mask(whole[:-1] + bytes(9)).code == "truncated"


def test_decoder_versions_are_all_known():
    found = images.decoder_versions()
    assert list(found) == ["pillow", "libjpeg_turbo", "jpg", "zlib", "zlib_ng", "webp", "libtiff"]
    assert "none" not in found.values()


TAGGED = write_tiff(NEAR.tobytes(), (2, 4), (8,), 1, t700=7).replace(
    b"\x00\x01\x04\0\x01\0\0\0", b"\x00\x01\x04\0\x07\0\0\0", 1
)
"""A TIFF whose width has 7 values, of which Pillow warns."""


def test_warnings_of_pillow_are_not_printed():
    bad_exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(10)
    code = (
        "import sys; from transforms.core import images\n"
        "try: images.decode_image(sys.stdin.buffer.read(), 'a', max_pixels=10**6)\n"
        "except images.DataError: pass"
    )
    for data in (save(RGB, "JPEG", exif=bad_exif), TAGGED, CONVERTED["png-p-all-transparent"]):
        run = subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, check=True, cwd=ROOT
        )
        assert (run.stdout, run.stderr) == (b"", b"")


# ---- real pictures

needs_pairs = pytest.mark.skipif(not PAIRS.is_dir(), reason=f"no real pictures: {PAIRS} is absent")


@needs_pairs
def test_real_voc_pairs():
    names = (PAIRS / "voc" / "trainval.txt").read_text().split()
    assert names
    for name in names[:20]:
        jpeg = (PAIRS / "voc" / "JPEGImages" / f"{name}.jpg").read_bytes()
        png = (PAIRS / "voc" / "SegmentationClass" / f"{name}.png").read_bytes()
        np.testing.assert_array_equal(image_of(jpeg), by_pillow(jpeg))
        np.testing.assert_array_equal(mask_of(png), np.array(PilImage.open(io.BytesIO(png))))
        mask = images.decode_mask(png, name, max_pixels=LIMIT)
        images.check_classes(mask, name, num_classes=11, ignore_id=255)
        encoded = images.encode_mask_png(png, mask)
        assert np.array(PilImage.open(io.BytesIO(encoded))).tobytes() == mask.ids


@needs_pairs
def test_real_camvid_pairs():
    lines = (PAIRS / "camvid" / "train.txt").read_text().splitlines()
    assert lines
    for line in lines[:10]:
        files = [PAIRS / "camvid" / "/".join(path.split("/")[-2:]) for path in line.split()]
        picture, grey = (file.read_bytes() for file in files)
        np.testing.assert_array_equal(image_of(picture), by_pillow(picture))
        np.testing.assert_array_equal(mask_of(grey), np.array(PilImage.open(io.BytesIO(grey))))
        mask = images.decode_mask(grey, line, max_pixels=LIMIT)
        images.check_classes(mask, line, num_classes=12, ignore_id=255)
        assert images.encode_mask_png(grey, mask) == grey


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_a_jpeg_is_refused_alike_with_and_without_pixels(options: dict[str, object]) -> None:
    # Without pixels a JPEG is decoded at an eighth of the scale: it must find the same damage.
    data = save(draw_rgb(123, 77), "JPEG", quality=90, **options)
    damaged = [*damage.truncate(data), *damage.flip(data, seed=7, times=200)]
    outcomes = []
    for item in damaged:
        outcomes.append([code_of(item.data, pixels=True), code_of(item.data, pixels=False)])
    assert [full for full, _ in outcomes] == [bare for _, bare in outcomes]
    assert "truncated" in {full for full, _ in outcomes}


def code_of(data: bytes, *, pixels: bool) -> str:
    try:
        images.decode_image(data, "a/b.jpg", max_pixels=LIMIT, pixels=pixels)
    except DataError as error:
        return error.code
    return ""
