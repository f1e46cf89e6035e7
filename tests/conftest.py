"""Fixtures that the tests share: small data sets, and ways to run the command."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import data_sets
import pytest

from launch.command import main

# A shell that starts the tests in the background has them ignore Ctrl-C, and their commands too.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPO = Path(__file__).resolve().parent.parent
REAL_PAIRS = REPO.parent / "shared" / "pairs"
SIZE = "48x36"
PAIRS = 24


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


def _run(*arguments: object) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # --help
            status = int(end.code or 0)
    return Ran(status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs the command in this process: run("build", …) → Ran."""
    return _run


@pytest.fixture(scope="session")
def run_apart() -> Run:
    """Runs the command in a process of its own: run_apart("build", …, **environment) → Ran."""

    def run(*arguments: object, **environment: str) -> Ran:
        command = [sys.executable, "-m", "launch", *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=REPO,
            env=os.environ | environment,
            timeout=300,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def build(run: Run) -> Run:
    """Builds without verification, which costs the import of TensorFlow."""

    def build(manifest: object, output: object, *options: object) -> Ran:
        manifests = manifest if isinstance(manifest, list) else [manifest]
        given = [] if "--verify" in options else ["--verify", "none"]
        # In this process, where tests can put hands on it; other numbers are asked for by name.
        given += [] if "--workers" in options else ["--workers", 1]
        return run("build", *manifests, "--output", output, *given, *options)

    return build


class ChildHere:
    """Answers like `Child`, in this process: TensorFlow is imported once for all tests."""

    def call(self, function, *args, on_note=lambda note: None):
        return function(*args, on_note)

    def close(self) -> None:
        """There is no process to be ended."""


@pytest.fixture
def verify_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets verification compare records in this process, which takes no 5 seconds each time."""
    monkeypatch.setattr("transforms.core.comparing.Child", ChildHere)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 24 pairs of 48×36 with pairs.csv and classes.txt; to be left as it is."""
    folder = tmp_path_factory.mktemp("drawn")
    script = REPO / "examples" / "draw_pairs.py"
    options = ["--pairs", str(PAIRS), "--size", SIZE, "--jobs", "1"]
    subprocess.run([sys.executable, script, folder, *options], check=True, capture_output=True)
    return folder


@pytest.fixture
def sources(drawn: Path, tmp_path: Path) -> Path:
    """A copy of `drawn`, the times of change as well, that a test may do with what it likes."""
    return Path(shutil.copytree(drawn, tmp_path / "sources"))


@pytest.fixture(scope="session")
def raw(drawn: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`drawn` as a raw data set of four shards; to be left as it is."""
    return _build_drawn(drawn, build, tmp_path_factory.mktemp("built") / "raw")


@pytest.fixture(scope="session")
def encoded(drawn: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`drawn` as an encoded data set of four shards; to be left as it is."""
    folder = tmp_path_factory.mktemp("built") / "encoded"
    return _build_drawn(drawn, build, folder, "--payload", "encoded")


def _build_drawn(drawn: Path, build: Run, output: Path, *options: str) -> Path:
    ran = build(drawn / "pairs.csv", output, "--num-shards", 4, *options)
    assert ran.status == 0, ran.err
    return output


@pytest.fixture(scope="session")
def real_pairs() -> Path:
    """The folder of real street scenes, where there is one beside the repository."""
    if not REAL_PAIRS.is_dir():
        pytest.skip("there are no real pictures: ../shared/pairs is not there")
    return REAL_PAIRS


@pytest.fixture
def publishes_nothing():
    """Checks a failed run: no data set, and one clear message without a traceback."""

    def check(ran: Ran, output: Path, status: int, *said: str) -> None:
        assert ran.status == status, ran.err
        assert not data_sets.is_published(output)
        assert "Traceback" not in ran.err + ran.out
        for text in said:
            assert text in ran.err + ran.out

    return check
