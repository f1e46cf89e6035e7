"""Processes of our own: what they import, what they hand on, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import REPO

from transforms.core import child
from transforms.core.child import Child, ChildError
from transforms.core.errors import ConfigError, DataError, PlaceError

FUNCTIONS = """
import os, sys, time

def fail(error, note):
    raise error

def divide(note):
    return 1 / 0

def look(note):
    return sys.path, os.getcwd()

def sleep(note):
    note(os.getpid())
    time.sleep(60)

class OddMemoryError(MemoryError):
    def __init__(self, size, kind):
        super().__init__(size, kind)

    def __str__(self):
        return "no room"

def run_out(note):
    raise OddMemoryError(1, 2)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that the child can import, since it stands on this process's path."""
    folder = tmp_path / "with: a colon"
    folder.mkdir()
    (folder / "functions_of_a_test.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(folder)
    yield __import__("functions_of_a_test")
    del sys.modules["functions_of_a_test"]


@pytest.fixture
def one():
    child = Child()
    yield child
    child.close()


def test_the_path_is_the_parents(functions, one: Child, monkeypatch, tmp_path: Path):
    path, folder = one.call(functions.look)
    assert path == [entry for entry in sys.path if entry]
    assert folder == os.getcwd()


@pytest.mark.parametrize(
    "error", [DataError("corrupt", "m", path="p"), ConfigError("c"), PlaceError("p")]
)
def test_errors_with_a_meaning_are_handed_on(error, functions, one: Child):
    with pytest.raises(type(error)) as caught:
        one.call(functions.fail, error)
    assert str(caught.value) == str(error)


def test_lack_of_memory_is_handed_on(functions, one: Child):
    with pytest.raises(MemoryError, match=r"^no room$"):
        one.call(functions.run_out)


def test_a_bug_comes_with_its_traceback(functions, one: Child):
    with pytest.raises(ChildError, match=r"(?s)in divide.*ZeroDivisionError"):
        one.call(functions.divide)
    with pytest.raises(ChildError, match="AttributeError"):
        functions.look.__qualname__ = "gone"
        one.call(functions.look)


def test_a_child_that_can_not_be_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(PlaceError, match="a worker process can't be started: No such file"):
        Child()


ENTRY = "import sys\nfrom launch.command import main\nsys.exit(main())\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_users_own_modules_are_left_alone(workers, drawn: Path, tmp_path: Path):
    folder = tmp_path / "cwd"
    folder.mkdir()
    for name in ("transforms", "io", "queue", "numpy", "linecache", "pickle", "launch"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the user was run')\n")
    (tmp_path / "bin").mkdir()
    entry = tmp_path / "bin" / "pairshard"  # as pip writes it: its folder is first on the path
    entry.write_text(ENTRY)
    words = [sys.executable, entry, "build", drawn / "pairs.csv", "--output", tmp_path / "set"]
    words += ["--verify", "sample" if workers == 1 else "none", "--workers", str(workers)]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPO)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_child_ends_with_a_parent_that_is_killed(functions):
    code = f"""
import os, sys
sys.path[:] = {sys.path!r}
import functions_of_a_test
from transforms.core.child import Child
Child().call(functions_of_a_test.sleep, on_note=lambda pid: print(pid, flush=True))
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    number = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    limit = time.monotonic() + 10 * child.PARENT_POLL_SECONDS
    while is_running(number):
        assert time.monotonic() < limit
        time.sleep(0.02)


def is_running(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # ended, and nobody has asked how
