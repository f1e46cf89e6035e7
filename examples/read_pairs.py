"""Reads a data set of pairs (payload raw) as a training job does.

    python examples/read_pairs.py demo/dataset

prints what the first batch of the split `train` holds. The lines between the two marks are the
ones that the README and `make demo` show.
"""

# ruff: noqa: I001 - what the snippet imports stands in the snippet

from __future__ import annotations

import sys

# [reading]
import json
from pathlib import Path

import tensorflow as tf

FEATURES = {
    "height": tf.io.FixedLenFeature([], tf.int64),
    "width": tf.io.FixedLenFeature([], tf.int64),
    "image_raw": tf.io.FixedLenFeature([], tf.string),
    "mask_raw": tf.io.FixedLenFeature([], tf.string),
}


def parse_pair(record):
    pair = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_raw(pair["image_raw"], tf.uint8)  # RGB
    mask = tf.io.decode_raw(pair["mask_raw"], tf.uint8)  # class ids
    height, width = pair["height"], pair["width"]
    return tf.reshape(image, [height, width, 3]), tf.reshape(mask, [height, width])


def read_pairs(folder, split="train"):
    dataset = json.loads((Path(folder) / "dataset.json").read_text(encoding="utf-8"))
    shards = [f"{folder}/{shard['name']}" for shard in dataset["splits"][split]["shards"]]
    return tf.data.TFRecordDataset(shards).map(parse_pair, num_parallel_calls=tf.data.AUTOTUNE)


# [end of reading]


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) > 1 else "demo/dataset"
    for image, mask in read_pairs(folder).batch(8).take(1):
        ids, _ = tf.unique(tf.sort(tf.reshape(mask, [-1])))
        print(f"images {image.shape} {image.dtype.name}, masks {mask.shape} {mask.dtype.name}")
        print(f"class ids in this batch: {', '.join(map(str, ids.numpy()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
