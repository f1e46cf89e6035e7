"""What pairshard is measured against: the same pairs, the same records, written in other ways.

    python benchmarks/rivals.py pool pairs.csv --output DIR

Each rival writes what `pairshard build --payload raw` writes (height, width, image_raw, mask_raw)
to sharded TFRecord files, and prints one line of JSON: its name, the pairs, the seconds once
running (without start-up and imports).

obvious: the Beam pipeline that everybody writes first, on FnApiRunner in this process; that is
    what `DirectRunner` runs for it, asked for by name so that no other runner is tried before.
pool: a hand-written process pool on all cores, one shard a task. The processes are forked once
    TensorFlow is loaded, and wait at their posts before the clock starts.
loop: the same in one process.
floor: decoding alone, nothing written, on all cores; with threads and with processes, and the
    faster of the two counts.

`check` reads back with tf.data what a rival wrote and compares every record.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import csv
import functools
import glob
import hashlib
import json
import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from measuring import count_cores
from PIL import Image

Paths = tuple[str, str]
DECODE_AT_ONCE = 32


def read_pairs(manifest: Path) -> list[Paths]:
    """The paths of each image and its mask, from a CSV whose paths are relative to its folder."""
    with manifest.open(encoding="utf-8", newline="") as stream:
        return [
            (str(manifest.parent / row["image"]), str(manifest.parent / row["mask"]))
            for row in csv.DictReader(stream)
        ]


def shuffle_pairs(pairs: list[Paths]) -> list[Paths]:
    """Training wants them shuffled; the pool and the loop shuffle the paths, as we do."""
    return random.Random(0).sample(pairs, len(pairs))


def name_shard(output: Path, shard: int, num_shards: int) -> str:
    return str(output / f"pairs-{shard:05d}-of-{num_shards:05d}.tfrecord")


def bytes_feature(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def int64_feature(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def make_example(pair: Paths) -> tf.train.Example:
    """Decodes a pair into the record that all of them write."""
    with Image.open(pair[0]) as image, Image.open(pair[1]) as mask:
        pixels, class_ids = np.asarray(image), np.asarray(mask)
    features = {
        "height": int64_feature(pixels.shape[0]),
        "width": int64_feature(pixels.shape[1]),
        "image_raw": bytes_feature(pixels.tobytes()),
        "mask_raw": bytes_feature(class_ids.tobytes()),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def encode_pair(pair: Paths) -> bytes:
    return make_example(pair).SerializeToString()


def run_obvious(pairs: list[Paths], output: Path, num_shards: int) -> float:
    """Seconds of the Beam pipeline, from its construction to its end."""
    # Here, since the other rivals must not pay for loading Beam.
    import apache_beam as beam  # noqa: PLC0415
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: PLC0415

    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    started = time.perf_counter()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | beam.Create(pairs)
            | beam.Reshuffle()
            | beam.Map(encode_pair)
            | beam.io.WriteToTFRecord(
                str(output / "pairs"), file_name_suffix=".tfrecord", num_shards=num_shards
            )
        )
    return time.perf_counter() - started


def write_shard(path: str, pairs: list[Paths]) -> int:
    with tf.io.TFRecordWriter(path) as writer:
        for pair in pairs:
            writer.write(encode_pair(pair))
    return len(pairs)


def cut_shards(pairs: list[Paths], output: Path, num_shards: int) -> list[tuple[str, list[Paths]]]:
    """Each shard's path and its pairs."""
    shuffled = shuffle_pairs(pairs)
    return [
        (name_shard(output, shard, num_shards), shuffled[shard::num_shards])
        for shard in range(num_shards)
    ]


def start_pool() -> Pool:
    """A process a core, forked and answering. Fork, since TensorFlow is then loaded but once."""
    pool = multiprocessing.get_context("fork").Pool(count_cores())
    pool.map(abs, range(64 * count_cores()), chunksize=1)
    return pool


def run_pool(pairs: list[Paths], output: Path, num_shards: int) -> float:
    """Seconds of the warm pool, from the list of pairs to the last shard closed."""
    with start_pool() as pool:
        started = time.perf_counter()
        shards = cut_shards(pairs, output, num_shards)
        written = sum(pool.starmap(write_shard, shards, chunksize=1))
        seconds = time.perf_counter() - started
    check_count(written, len(pairs))
    return seconds


def run_loop(pairs: list[Paths], output: Path, num_shards: int) -> float:
    """Seconds of one process that writes one shard after another."""
    started = time.perf_counter()
    written = sum(write_shard(*shard) for shard in cut_shards(pairs, output, num_shards))
    seconds = time.perf_counter() - started
    check_count(written, len(pairs))
    return seconds


def decode_pairs(pairs: list[Paths]) -> int:
    """Decodes images and masks, and drops them."""
    for pair in pairs:
        for path in pair:
            with Image.open(path) as image:
                image.load()
    return len(pairs)


def time_decoding(pairs: list[Paths], run_all: Callable[[list[list[Paths]]], list[int]]) -> float:
    started = time.perf_counter()
    batches = [pairs[at : at + DECODE_AT_ONCE] for at in range(0, len(pairs), DECODE_AT_ONCE)]
    decoded = sum(run_all(batches))
    seconds = time.perf_counter() - started
    check_count(decoded, len(pairs))
    return seconds


def run_floor(pairs: list[Paths], output: Path, num_shards: int) -> float:
    """Seconds of decoding alone, the better of threads and processes; writes nothing."""
    with start_pool() as pool:
        by_processes = time_decoding(pairs, functools.partial(pool.map, decode_pairs, chunksize=1))
    with concurrent.futures.ThreadPoolExecutor(count_cores()) as threads:
        by_threads = time_decoding(pairs, lambda batches: list(threads.map(decode_pairs, batches)))
    print(f"processes {by_processes:.2f} s, threads {by_threads:.2f} s", file=sys.stderr)
    return min(by_processes, by_threads)


def check_count(done: int, expected: int) -> None:
    if done != expected:
        raise RuntimeError(f"{done} pairs done, {expected} expected")


def digest_record(height: int, width: int, image: bytes, mask: bytes) -> bytes:
    return hashlib.sha1(b"%d %d " % (height, width) + image + mask).digest()


def digest_pair(pair: Paths) -> bytes:
    """What a pair's record must say."""
    image, mask = np.array(Image.open(pair[0])), np.array(Image.open(pair[1]))
    return digest_record(*mask.shape, image.tobytes(), mask.tobytes())


def digest_example(record: tf.Tensor) -> bytes:
    """What a record says, read with TensorFlow's own parser."""
    integer, string = tf.io.FixedLenFeature([], tf.int64), tf.io.FixedLenFeature([], tf.string)
    spec = {"height": integer, "width": integer, "image_raw": string, "mask_raw": string}
    parsed = tf.io.parse_single_example(record, spec)
    return digest_record(*(parsed[name].numpy() for name in spec))


def check_records(pairs: list[Paths], output: Path) -> int:
    """Compares all shards under `output` with the pairs, in any order; gives the records' number.

    Raises:
      RuntimeError: if a record is missing, is twice there, or differs.
    """
    shards = sorted(glob.glob(str(output / "*.tfrecord")))
    found = collections.Counter(map(digest_example, tf.data.TFRecordDataset(shards)))
    expected = collections.Counter(map(digest_pair, pairs))
    if found != expected:
        wrong, missing = (found - expected).total(), (expected - found).total()
        raise RuntimeError(f"{output}: {wrong} records too many or wrong, {missing} missing")
    return found.total()


RIVALS = {"obvious": run_obvious, "pool": run_pool, "loop": run_loop, "floor": run_floor}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("what", choices=[*RIVALS, "check"])
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="CSV with image,mask")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--num-shards", type=int, default=16, help="default %(default)s")
    options = parser.parse_args(argv)
    pairs = read_pairs(options.manifest)
    if options.what == "check":
        print(json.dumps({"checked": check_records(pairs, options.output)}))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    seconds = RIVALS[options.what](pairs, options.output, options.num_shards)
    print(json.dumps({"rival": options.what, "pairs": len(pairs), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
