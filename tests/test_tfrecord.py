"""The framing of TFRecord files: TensorFlow's, byte for byte, and every damage is found."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import google_crc32c
import pytest

from transforms.core.tfrecord import (
    FrameError,
    crc32c_of,
    format_footer,
    format_header,
    join_crcs,
    mask_crc,
    read_frames,
)

RECORDS = [b"", b"a", b"hello world", bytes(range(256)) * 40]


def frame(record: bytes) -> bytes:
    return format_header(len(record)) + record + format_footer(crc32c_of([record]))


def read(data: bytes) -> list[bytes]:
    return [found.data for found in read_frames(io.BytesIO(data), limit=len(data))]


def refused(data: bytes) -> FrameError:
    with pytest.raises(FrameError) as caught:
        read(data)
    return caught.value


def test_crc32c_of_the_rfcs_examples():
    # RFC 3720, B.4
    assert crc32c_of([bytes(32)]) == 0x8A9136AA
    assert crc32c_of([b"\xff" * 32]) == 0x62A8AB43
    assert crc32c_of([bytes(range(32))]) == 0x46DD794E
    assert crc32c_of([bytes(range(10)), b"", bytes(range(10, 32))]) == 0x46DD794E
    assert crc32c_of([bytes(range(10, 32))], crc32c_of([bytes(range(10))])) == 0x46DD794E


def test_the_mask_is_tensorflows():
    # tensorflow/core/lib/hash/crc32c.h: rotated right by 15 bits, plus 0xa282ead8
    assert mask_crc(0) == 0xA282EAD8
    assert mask_crc(0x8000) == 0xA282EAD9
    assert mask_crc(0xFFFFFFFF) == 0xA282EAD7


def test_the_bytes_are_tensorflows(tmp_path: Path):
    import tensorflow as tf  # noqa: PLC0415 - 5 seconds, which only this test is to cost

    chance = random.Random(0)
    records = [*RECORDS, *(chance.randbytes(size) for size in (1, 4096, 100_000))]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in records:
            writer.write(record)
    ours = b"".join(map(frame, records))
    assert ours == (tmp_path / "theirs").read_bytes()
    (tmp_path / "ours").write_bytes(ours)
    dataset = tf.data.TFRecordDataset(str(tmp_path / "ours"))
    assert [record.numpy() for record in dataset] == records


def test_what_is_written_is_read_with_its_offsets():
    data = b"".join(map(frame, RECORDS))
    frames = list(read_frames(io.BytesIO(data), limit=len(data)))
    assert [found.data for found in frames] == RECORDS
    assert [found.offset for found in frames] == [0, 16, 33, 60]
    assert [found.crc32c for found in frames] == [crc32c_of([record]) for record in RECORDS]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0, "the CRC of the length is wrong"),
        (7, "the CRC of the length is wrong"),
        (8, "the CRC of the length is wrong"),
        (11, "the CRC of the length is wrong"),
        (12, "the CRC of the data (11 bytes) is wrong"),
        (22, "the CRC of the data (11 bytes) is wrong"),
        (23, "the CRC of the data (11 bytes) is wrong"),
        (26, "the CRC of the data (11 bytes) is wrong"),
    ],
)
def test_a_flipped_bit_is_found_at_its_frame(at: int, reason: str):
    data = bytearray(b"".join(map(frame, RECORDS)))
    data[33 + at] ^= 0x10
    error = refused(bytes(data))
    assert (error.offset, error.reason) == (33, reason)


def test_a_file_that_is_cut_off_is_found_wherever_it_is():
    data = frame(b"first") + frame(b"second")
    for length in range(1, len(data)):
        if length == len(frame(b"first")):
            assert read(data[:length]) == [b"first"]
            continue
        error = refused(data[:length])
        assert error.offset == (0 if length < 21 else 21)
        assert error.reason.startswith("cut off: ")


def test_a_length_of_exabytes_is_not_allocated():
    length = struct.pack("<Q", 2**62)
    data = length + struct.pack("<I", mask_crc(crc32c_of([length]))) + bytes(100)
    error = refused(data)
    assert error.reason == f"cut off: {2**62} bytes of data were expected, the file ends at 112"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 255, 256, 4095, 65_537, 691_302])
def test_joined_crcs_are_the_crc_of_both_pieces(size: int) -> None:
    first, second = random.Random(size).randbytes(1000), random.Random(-size).randbytes(size)
    joined = join_crcs(crc32c_of([first]), crc32c_of([second]), size)
    assert joined == google_crc32c.value(first + second)
