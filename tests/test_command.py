"""Printing, interruptions, lack of memory and Beam's options: what the command makes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import data_sets
import pytest
from conftest import REPO, Run

from launch import status
from transforms.core.progress import PROGRESS


def run_in_shell(line: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell, in which "$@" is the command with its arguments."""
    arguments = [sys.executable, "-m", "launch", *map(str, words)]
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}", "bash", *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=REPO,
        env=os.environ | environment,
        timeout=120,
    )


def damaged(raw: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(raw, tmp_path / "damaged"))
    (folder / "train-00001-of-00004.tfrecord").unlink()
    return folder


GONE = '"$@" > >(true) 2>&1'
"""The reader has gone long before the command, which takes a while to start, prints."""


@pytest.mark.parametrize("line", [GONE, '"$@" > /dev/full', '"$@" >&-', '"$@" >&- 2>&-'])
def test_a_summary_that_nobody_reads_keeps_the_status(line, raw: Path, drawn: Path, tmp_path: Path):
    report = tmp_path / "report.txt"
    words = ("--fraction", "0.000001", "--report", report)
    ran = run_in_shell(line, "verify", damaged(raw, tmp_path), *words)
    assert (ran.returncode, ran.stderr) == (status.VERIFICATION_FAILED, "")
    assert "train-00001-of-00004.tfrecord is missing" in report.read_text()
    manifest = data_sets.write_csv(tmp_path / "m.csv", [["none.jpg", "none.png"]])
    words = ("--output", tmp_path / "set", "--verify", "none")
    ran = run_in_shell(line, "build", manifest, *words)
    assert (ran.returncode, ran.stderr) == (status.TOO_MANY_REJECTS, "")
    ran = run_in_shell(line, "build", drawn / "pairs.csv", *words)
    assert (ran.returncode, ran.stderr) == (status.DONE, "")
    assert data_sets.is_published(tmp_path / "set")


def test_an_error_that_nobody_reads_keeps_the_status(tmp_path: Path):
    for line in (GONE, '"$@" 2>&-', '"$@" 2> /dev/full'):
        assert run_in_shell(line, "show", tmp_path).returncode == status.WRONG_USE


def test_show_ends_quietly_with_its_reader(raw: Path):
    ran = run_in_shell('"$@" | head -n 1', "show", raw, "--records", 24)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 1


def test_what_was_asked_for_and_can_not_be_printed_is_no_success(raw: Path):
    ran = run_in_shell('"$@" > /dev/full', "show", raw)
    assert ran.returncode == status.PLACE_FAILED
    assert "writing standard output failed: No space left on device" in ran.stderr


def test_closed_streams_leave_their_numbers_to_no_other_file(raw: Path, drawn: Path, tmp_path):
    words = ("--output", tmp_path / "set", "--verify", "none", "--num-shards", 4)
    assert run_in_shell('"$@" <&- >&- 2>&-', "build", drawn / "pairs.csv", *words).returncode == 0
    assert data_sets.differing(tmp_path / "set", raw) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_text_can_be_printed(encoding, tmp_path: Path):
    ran = run_in_shell('"$@"', "show", tmp_path / "é…\udcff", PYTHONIOENCODING=encoding)
    assert ran.returncode == status.WRONG_USE
    assert ran.stderr.startswith("pairshard: ")
    manifest = data_sets.write_csv(tmp_path / "m.csv", [["né.jpg", "né.png"]])
    words = ("--output", tmp_path / "set", "--verify", "none", "--max-rejects", 1)
    ran = run_in_shell('"$@" 2>&1', "build", manifest, *words, PYTHONIOENCODING=encoding)
    assert ran.returncode == 0, ran.stdout
    assert "missing_file: n" in ran.stdout


def test_a_printed_manifest_is_utf_8(drawn: Path, tmp_path: Path):
    shutil.copy(drawn / "images" / sorted(os.listdir(drawn / "images"))[0], tmp_path / "é.jpg")
    (tmp_path / "masks").mkdir()
    shutil.copy(drawn / "masks" / sorted(os.listdir(drawn / "masks"))[0], tmp_path / "masks/é.png")
    words = ("manifest", "dirs", tmp_path, tmp_path / "masks")
    ran = run_in_shell('"$@" > "$OUT"', *words, PYTHONIOENCODING="ascii", OUT=f"{tmp_path}/m.csv")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "m.csv").read_text("utf-8") == "image,mask\né.jpg,masks/é.png\n"


def test_a_source_root_whose_name_is_not_utf_8(sources: Path, tmp_path: Path, run: Run):
    other = sources.rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    manifest, output = Path(shutil.copy(other / "pairs.csv", tmp_path / "m.csv")), tmp_path / "set"
    ran = run("build", manifest, "--source-root", other, "--output", output)
    assert ran.status == status.WRONG_USE, ran.err
    assert ran.err.startswith("pairshard: --source-root '")
    assert "/\\udcff': its name must be UTF-8; rename the folder" in ran.err
    assert not output.exists()


def test_an_output_whose_name_is_not_utf_8(drawn: Path, raw: Path, build: Run, tmp_path: Path):
    output = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert build(drawn / "pairs.csv", output, "--num-shards", 4, "--workers", 2).status == 0
    assert data_sets.differing(output, raw) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "out of memory; --threads 1"),
        ("a.png: out of memory", "out of memory (a.png: out of memory); --threads 1"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_memory_runs_out(
    workers, text, said, monkeypatch, drawn: Path, build: Run, tmp_path: Path, publishes_nothing
):
    def break_down(*given, **named):
        raise MemoryError(*([text] if text else []))

    monkeypatch.setattr("transforms.write_tfrecord.write_shard", break_down)
    monkeypatch.setattr("transforms.write_tfrecord.write_shard_in_child", break_down)
    ran = build(drawn / "pairs.csv", tmp_path / "set", "--workers", workers)
    publishes_nothing(ran, tmp_path / "set", 5, f"pairshard: {said}", "--workers 1", "--max-pixels")
    assert ran.err.count("\n") == 2


@pytest.mark.parametrize(
    "line",
    [
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 GiB",
        "RuntimeError: pyarrow.lib.ArrowMemoryError: malloc of size 9 failed [while running 'x']",
        "MemoryError",
    ],
)
def test_memory_that_a_worker_lacks_is_known_by_its_text(line):
    found = status.find_cause(RuntimeError(f"Traceback:\n  File\n{line}\n"))
    assert found is not None
    assert found[0] == status.PLACE_FAILED
    assert "[while" not in found[1]


def test_a_message_about_memory_is_no_lack_of_it():
    text = "Traceback:\n  except MemoryError:\nValueError: MemoryError is handled"
    assert status.find_cause(RuntimeError(text)) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--direct_num_workers=many", "argument --direct_num_workers: invalid int value: 'many'"),
        ("--direct_running_mode odd", "argument --direct_running_mode: invalid choice: 'odd'"),
        ("--direct_num_workers", "argument --direct_num_workers: expected one argument"),
        ("foo", "foo: belongs to no option of Beam"),
        ("--job_name x foo", "foo: belongs to no option of Beam"),
    ],
)
@pytest.mark.parametrize("name", ["build", "verify"])
def test_wrong_values_of_beams_options(
    name, words, said, run: Run, drawn: Path, raw: Path, tmp_path: Path
):
    output = tmp_path / "set"
    ours = [raw] if name == "verify" else [drawn / "pairs.csv", "--output", output]
    ran = run(name, *ours, "--", *words.split())
    assert (ran.status, ran.out) == (status.WRONG_USE, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not output.exists()


def test_beams_options_are_taken(drawn: Path, build: Run, tmp_path: Path):
    words = ("--", "--job_name", "x", "--direct_num_workers=1", "--experiments=a")
    assert build(drawn / "pairs.csv", tmp_path / "set", *words).status == 0


def test_a_command_without_beam_takes_none_of_its_options(raw: Path, run: Run):
    ran = run("show", raw, "--", "foo")
    assert (ran.status, ran.err) == (2, "pairshard: foo: show takes no options of Beam\n")


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, run: Run):
    """Runs a command in which a function gets Ctrl-C; returns what was said."""

    def leave(number: int) -> None:
        raise SystemExit(number)

    def press(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    def interrupt(target: str, *words: object) -> str:
        monkeypatch.setattr("launch.command.os._exit", leave)
        monkeypatch.setattr(target, press)
        ran = run(*words)
        assert ran.status == status.INTERRUPTED
        assert ran.err.startswith("\npairshard: interrupted")
        return ran.err.removeprefix("\npairshard: ").rstrip("\n")

    yield interrupt
    PROGRESS.cancelled.clear()


def test_an_interruption_of_what_builds_nothing(interrupted, raw: Path, drawn: Path):
    said = interrupted("beam_pipeline.verify.run_verify", "verify", raw)
    assert said.startswith("interrupted; not all was read, so nothing is known of the data set")
    assert interrupted("beam_pipeline.show.format_dataset", "show", raw) == "interrupted"
    words = ("manifest", "dirs", drawn / "images", drawn / "masks")
    assert interrupted("transforms.core.listing.list_dirs", *words) == "interrupted"


def test_an_interruption_before_the_commit(interrupted, drawn: Path, tmp_path: Path):
    words = ("build", drawn / "pairs.csv", "--output", tmp_path / "set", "--verify", "none")
    words = (*words, "--workers", 1, "--quiet")
    said = interrupted("beam_pipeline.output.close_build", *words)
    assert said.startswith("interrupted; nothing was published. The same command goes on")


def test_an_interruption_after_the_commit(interrupted, drawn: Path, tmp_path: Path):
    output = tmp_path / "set"
    words = ("build", drawn / "pairs.csv", "--output", output, "--verify", "none", "--workers", 1)
    said = interrupted("beam_pipeline.output.clear_build", *words)
    assert data_sets.is_published(output)
    assert said == f"interrupted; {output} is a finished data set"
