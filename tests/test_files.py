"""Sources that are opened: only what can be read without waiting, and what they are told by."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from conftest import Run

from transforms.core import files, index, pairs
from transforms.core.errors import DataError
from transforms.core.settings import RecordSettings

YEAR_2300_NS = 10_413_792_000 * 10**9
IMAGE = "images/000000.jpg"


def reckon(root: Path, image: str) -> int | None:
    return pairs.reckon_size(str(root), (image, "m.png"), RecordSettings())


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    found: list[object] = []
    work = threading.Thread(target=lambda: found.append(reckon(tmp_path, "pipe.jpg")), daemon=True)
    work.start()
    work.join(10)
    assert found == [None]
    with pytest.raises(DataError, match="no regular file"):
        files.read_source(str(tmp_path), "pipe.jpg")


def test_a_pipe_as_image_is_a_reject_with_the_default_shard_size(
    sources: Path, run_apart: Run, tmp_path: Path
) -> None:
    (sources / IMAGE).unlink()
    os.mkfifo(sources / IMAGE)
    command = ("build", sources / "pairs.csv", "--output", tmp_path / "set", "--verify", "none")
    ran = run_apart(*command, "--workers", 1)  # in a process of its own, which has a time limit
    assert ran.status == 3, ran.err
    assert f"not_readable: {IMAGE}: is no regular file" in ran.out


def test_nothing_is_reckoned_of_what_the_build_will_refuse(sources: Path) -> None:
    (sources / "link.jpg").symlink_to("/etc/hostname")
    with open(sources / "sparse.gif", "wb") as file:
        file.write(b"GIF89a")
        file.truncate(3 << 30)
    for name in ("none.jpg", "images", "link.jpg", "sparse.gif", "pairs.csv"):
        assert reckon(sources, name) is None
    assert reckon(sources, IMAGE) == pytest.approx(48 * 36 * 4, abs=200)


def test_find_fault_names_what_read_source_would(sources: Path) -> None:
    assert files.find_fault(str(sources), IMAGE) is None
    (sources / "link.jpg").symlink_to("/etc/hostname")
    fault = files.find_fault(str(sources), "link.jpg")
    assert fault is not None and fault.code == "path_outside_root"
    assert files.find_fault(str(sources), "link.jpg", inside_root=False) is None


@pytest.mark.parametrize("reject", [False, True])
def test_a_file_of_the_year_2300_is_built_and_kept(
    reject: bool, sources: Path, build: Run, tmp_path: Path
) -> None:
    if reject:
        (sources / IMAGE).write_bytes(b"words")
    try:
        os.utime(sources / IMAGE, ns=(YEAR_2300_NS, YEAR_2300_NS))
    except OSError:
        pytest.skip("this file system knows no year 2300")
    if os.stat(sources / IMAGE).st_mtime_ns != YEAR_2300_NS:
        pytest.skip("this file system knows no year 2300")
    options = ("--num-shards", 1, "--max-rejects", 1)
    for _ in range(2):
        ran = build(sources / "pairs.csv", tmp_path / "set", *options)
        assert ran.status == 0, ran.err
    [path] = (tmp_path / "set").rglob("*.parquet")
    times = {
        found.mtime_ns
        for row in index.read_index(str(path), pairs.PATH_COLUMNS)
        for found in row.fingerprints
        if found
    }
    assert max(times) == (1 << 63) - 1
