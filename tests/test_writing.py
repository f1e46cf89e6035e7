"""Rows worked on ahead: in order, within a budget of bytes, and rejects that were mended."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import data_sets
import pytest
from conftest import Run

from transforms.core import files, writing
from transforms.core.writing import Budget, map_ahead

IMAGE = "images/000000.jpg"


class Gauge:
    """Counts the rows that hold memory, as the shard's writer does: from `take` to `release`."""

    def __init__(self, sizes: list[int], budget: Budget) -> None:
        self.sizes, self.budget = sizes, budget
        self.lock = threading.Lock()
        self.held = self.most = 0

    def work(self, number: int) -> int:
        self.budget.take(number, self.sizes[number])
        with self.lock:
            self.held += self.sizes[number]
            self.most = max(self.most, self.held)
        time.sleep(0.001)
        return number

    def run(self, threads: int) -> list[int]:
        done = []
        with ThreadPoolExecutor(threads) as executor:
            for n in map_ahead(executor, self.work, range(len(self.sizes)), ahead=2 * threads):
                done.append(n)
                with self.lock:
                    self.held -= self.sizes[n]
                self.budget.release()
        return done


@pytest.mark.parametrize("threads", [2, 16, 64])
@pytest.mark.parametrize("sizes", [[50] * 200, [1] * 100 + [50] * 100, [500, 1] * 100])
def test_rows_ahead_hold_no_more_than_the_budget_and_one_row(
    sizes: list[int], threads: int
) -> None:
    gauge = Gauge(sizes, Budget(100))
    assert gauge.run(threads) == list(range(200))
    assert gauge.most <= 100 + max(sizes)


def test_small_rows_are_all_at_work_at_once() -> None:
    budget, together = Budget(100), threading.Barrier(16, timeout=10)

    def work(number: int) -> int:
        budget.take(number, 1)
        return together.wait()  # broken, unless all sixteen get here

    with ThreadPoolExecutor(16) as executor:
        assert sorted(map_ahead(executor, work, range(16), ahead=32)) == list(range(16))


def test_a_row_takes_bytes_step_by_step_and_gives_all_back() -> None:
    budget = Budget(10)
    for number in range(3):
        budget.take(number, 2)
        budget.take(number, 1_000)  # the next in order never waits
        budget.release()
    assert budget._total == 0 and not budget._held


def test_threads_that_wait_end_with_the_shard() -> None:
    budget = Budget(10)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(partial(budget.take, 1, 11))
        budget.close()
        with pytest.raises(CancelledError):
            waiting.result(10)


def test_a_disk_that_fails_does_not_leave_threads_waiting(
    sources: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "BYTES_AHEAD", 1)
    monkeypatch.setattr(files.OutputFile, "write", lambda self, pieces: _fail_place(fail))
    options = ("--output", tmp_path / "set", "--verify", "none", "--workers", 1, "--threads", 4)
    assert run("build", sources / "pairs.csv", *options).status == 5


def _fail_place(fail) -> None:
    with files.place_errors("a/shard"):
        fail()


def test_a_tight_budget_changes_no_byte(
    drawn: Path, raw: Path, build: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BYTES_AHEAD", 1)
    ran = build(drawn / "pairs.csv", tmp_path / "set", "--num-shards", 4, "--threads", 8)
    assert ran.status == 0, ran.err
    shards = sorted(path.relative_to(raw) for path in raw.rglob("*.tfrecord"))
    assert len(shards) == 4
    for shard in shards:
        assert (tmp_path / "set" / shard).read_bytes() == (raw / shard).read_bytes()


# ---- rejects that were mended without a trace in size and mtime


def reject(sources: Path, output: Path, build: Run, code: str) -> None:
    """Builds, but commits nothing, because one row is rejected."""
    ran = build(sources / "pairs.csv", output, "--num-shards", 2)
    assert ran.status == 3, ran.err
    assert f"{code}: " in ran.out


def accept(sources: Path, output: Path, build: Run, max_rejects: int = 0) -> int:
    """Runs the same build to its end, and returns the shards that it built anew."""
    ran = build(sources / "pairs.csv", output, "--num-shards", 2, "--max-rejects", max_rejects)
    assert ran.status == 0, ran.out
    return data_sets.read_json(output, "run.json")["shards"]["built"]


def test_a_link_that_became_a_copy_is_built(sources: Path, build: Run, tmp_path: Path) -> None:
    outside = shutil.move(sources / IMAGE, tmp_path / "outside.jpg")
    (sources / IMAGE).symlink_to(outside)
    reject(sources, tmp_path / "set", build, "path_outside_root")
    (sources / IMAGE).unlink()
    shutil.copy2(outside, sources / IMAGE)
    assert accept(sources, tmp_path / "set", build) == 1


def test_a_linked_folder_that_became_a_copy_is_built(
    sources: Path, build: Run, tmp_path: Path
) -> None:
    rows = [("linked/a.jpg", "masks/000000.png"), ("images/000001.jpg", "masks/000001.png")]
    data_sets.write_csv(sources / "pairs.csv", rows)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    shutil.copy2(sources / IMAGE, outside / "a.jpg")
    (sources / "linked").symlink_to(outside)
    reject(sources, tmp_path / "set", build, "path_outside_root")
    (sources / "linked").unlink()
    shutil.copytree(outside, sources / "linked")
    assert accept(sources, tmp_path / "set", build) == 1


def test_a_mended_permission_is_built(
    sources: Path, build: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: str, *args: int, **options: int) -> int:  # root may read everything
        if str(path).endswith(IMAGE):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        reject(sources, tmp_path / "set", build, "not_readable")
    assert accept(sources, tmp_path / "set", build) == 1


def test_a_reject_as_before_keeps_its_shard(sources: Path, build: Run, tmp_path: Path) -> None:
    outside = shutil.move(sources / IMAGE, tmp_path / "outside.jpg")
    (sources / IMAGE).symlink_to(outside)
    reject(sources, tmp_path / "set", build, "path_outside_root")
    assert accept(sources, tmp_path / "set", build, max_rejects=1) == 0
