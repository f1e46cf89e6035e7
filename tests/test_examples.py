"""tf.train.Example without TensorFlow: byte for byte what its deterministic encoder writes."""

from __future__ import annotations

import math
import random
import struct

import pytest

from transforms.core.examples import (
    BytesList,
    Feature,
    FloatList,
    Int64List,
    decode_example,
    encode_example,
)

NAMES = ("a", "", "ab", "B", "image/encoded", "größe", "東京", "😀", "\uffff", "a\0b", "x" * 200)
INTS = (0, 1, -1, 127, 128, 16383, 16384, 2**31, -(2**31), 2**63 - 1, -(2**63), 300, -300)


def encode(features: dict[str, Feature]) -> bytes:
    return b"".join(encode_example(features))


def encode_with_tensorflow(features: dict[str, Feature]) -> bytes:
    import tensorflow as tf  # noqa: PLC0415 - 5 seconds, which only these tests are to cost

    kinds = {BytesList: ("bytes_list", tf.train.BytesList)}
    kinds[FloatList] = ("float_list", tf.train.FloatList)
    kinds[Int64List] = ("int64_list", tf.train.Int64List)
    made = {}
    for name, feature in features.items():
        field, kind = kinds[type(feature)]
        made[name] = tf.train.Feature(**{field: kind(value=feature.values)})
    example = tf.train.Example(features=tf.train.Features(feature=made))
    return example.SerializeToString(deterministic=True)


def draw_feature(chance: random.Random) -> Feature:
    length = chance.choice((0, 1, 1, 2, 7, 300))
    kind = chance.randrange(3)
    if kind == 0:
        sizes = chance.choices((0, 1, 127, 128, 4095, 4096, 70_000), k=min(length, 7))
        return BytesList([chance.randbytes(size) for size in sizes])
    if kind == 1:
        floats = struct.unpack(f"<{length}f", chance.randbytes(4 * length))
        return FloatList([0.5 if math.isnan(value) else value for value in floats])
    return Int64List(
        [chance.choice((*INTS, chance.getrandbits(64) - 2**63)) for _ in range(length)]
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_bytes_are_tensorflows(seed: int):
    chance = random.Random(seed)
    names = chance.sample(NAMES, chance.randrange(len(NAMES)))
    features = {name: draw_feature(chance) for name in names}
    data = encode(features)
    assert data == encode_with_tensorflow(features)
    assert encode(dict(reversed(features.items()))) == data


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"": Int64List([])},
        {"e": BytesList([])},
        {"e": FloatList([])},
        {"e": BytesList([b""])},
        {"n": Int64List(INTS)},
        {"f": FloatList([0.0, -0.0, 1.5, float("inf"), float("-inf"), 1e-45])},
        {"height": Int64List([36]), "image_raw": BytesList([bytes(5184)])},
        {"a": Int64List([1]), "ab": Int64List([2]), "": Int64List([3]), "b": Int64List([4])},
        {"\U0001f600": Int64List([1]), "\uffff": Int64List([2])},  # UTF-8's order, not UTF-16's
    ],
)
def test_edge_cases_are_tensorflows_too(features: dict[str, Feature]):
    assert encode(features) == encode_with_tensorflow(features)


def test_the_bytes_written_out():
    # Example{features(1){feature(1){key(1) "h", value(2){int64_list(3){value(1) packed [300]}}}}}
    features = {"h": Int64List([300])}
    assert encode(features) == bytes.fromhex("0a0d0a0b0a016812061a040a02ac02")


@pytest.mark.parametrize("seed", range(40))
def test_what_is_encoded_is_decoded(seed: int):
    chance = random.Random(seed)
    features = {name: draw_feature(chance) for name in chance.sample(NAMES, 5)}
    decoded = decode_example(encode(features))
    assert set(decoded) == set(features)
    for name, feature in features.items():
        assert list(decoded[name].values) == list(feature.values)
        assert type(decoded[name]) is type(feature)


def test_big_byte_strings_are_not_copied():
    pixels = bytes(10_000)
    pieces = encode_example({"a": BytesList([pixels]), "b": BytesList([b"small"])})
    assert any(piece is pixels for piece in pieces)
    assert len(pieces) <= 3


def test_unpacked_numbers_of_old_writers_are_decoded():
    # int64_list {value: 1 value: 2}, each with a tag of its own
    data = bytes.fromhex("0a0d0a0b0a016812061a0408010802")
    assert decode_example(data) == {"h": Int64List([1, 2])}


@pytest.mark.parametrize("seed", range(5))
def test_damaged_bytes_are_a_value_error_or_another_example(seed: int):
    chance = random.Random(seed)
    data = encode({"height": Int64List([300, -1]), "b": BytesList([b"abc"]), "f": FloatList([1])})
    for length in range(len(data)):
        decode_or_refuse(data[:length])
    for _ in range(300):
        harmed = bytearray(data)
        harmed[chance.randrange(len(data))] = chance.randrange(256)
        decode_or_refuse(bytes(harmed))


def decode_or_refuse(data: bytes) -> None:
    try:
        decode_example(data)
    except ValueError as error:
        assert "no tf.train.Example" in str(error)
