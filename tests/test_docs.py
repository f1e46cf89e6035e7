"""What README, docs and Makefile say is what the program does: their commands are run here."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from beam_pipeline.options import make_parser
from beam_pipeline.output import BuildMark
from launch import status
from transforms.core.errors import REJECT_CODES
from transforms.core.pairs import FEATURES

REPO = Path(__file__).resolve().parent.parent
PACKAGES = ("beam_pipeline", "launch", "transforms", "transforms/core")
DOCS = sorted([*REPO.glob("*.md"), *(REPO / "docs").glob("*.md")])
README = (REPO / "README.md").read_text(encoding="utf-8")
LAYOUT = (REPO / "docs" / "layout.md").read_text(encoding="utf-8")
PAIRS = 60


def find_blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def find_table(text: str, *head: str) -> list[list[str]]:
    """The rows of the Markdown table with this head, cell by cell."""
    lines = iter(text.splitlines())
    assert any(split_cells(line) == list(head) for line in lines), f"no table {head}"
    next(lines)
    return [split_cells(line) for line in itertools.takewhile(split_cells, lines)]


def split_cells(line: str) -> list[str]:
    """The cells of a table's line; [] for any other."""
    return [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []


def code_names(cell: str) -> list[str]:
    """What stands in backquotes in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def find_commands() -> list[tuple[str, int]]:
    """The README's commands, each with the exit status that its comment names (else 0)."""
    commands = []
    for line in "".join(find_blocks(README, "sh")).splitlines():
        command, _, comment = line.partition("#")
        expected = re.search(r"exit status (\d+)", comment)
        commands.append((command.strip(), int(expected[1]) if expected else 0))
    return commands


def clean_environment() -> dict[str, str]:
    """The environment without what an outer make hands down, our packages importable."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "PYTHON", "VENV", "ARGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return environment | {"PYTHONPATH": str(REPO)}


def run_make(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(REPO), *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def make_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder where `make demo` has run (with this Python, not .venv's), and what it printed."""
    folder = tmp_path_factory.mktemp("readme")
    own_bin = os.path.dirname(sys.executable)
    done = run_make("demo", "READY=", f"BIN={own_bin}", f"DEMO={folder}/demo", f"PAIRS={PAIRS}")
    assert done.returncode == 0, done.stdout + done.stderr
    make_script(folder / "bin" / "pairshard", f'exec "{sys.executable}" -m launch "$@"')
    return folder, done.stdout


@pytest.fixture(scope="module")
def demo(demo_output: tuple[Path, str]) -> Path:
    return demo_output[0]


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment()
    environment["PATH"] = f"{folder}/bin{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_make_demo_says_where_the_shards_are_and_how_to_read_them(
    demo_output: tuple[Path, str],
) -> None:
    folder, printed = demo_output
    assert f"The shards are in {(folder / 'demo' / 'dataset').resolve()}:" in printed
    assert "  train-00000-of-00004.tfrecord" in printed
    assert f"rows: {PAIRS} read = {PAIRS} written + 0 rejected" in printed
    assert f"{PAIRS} compared with their sources, 0 wrong" in printed
    assert "images (8, 360, 480, 3) uint8, masks (8, 360, 480) uint8" in printed
    assert "    def read_pairs(folder, split=" in printed


@pytest.mark.slow
def test_make_demo_a_second_time_makes_nothing_again(demo: Path) -> None:
    own_bin = os.path.dirname(sys.executable)
    done = run_make("demo", "READY=", f"BIN={own_bin}", f"DEMO={demo}/demo", f"PAIRS={PAIRS}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"holds {PAIRS} pairs already" in done.stdout
    assert "up to date" in done.stdout


def test_make_test_runs_pytest() -> None:
    done = run_make("-n", "test", "READY_DEV=", "ARGS=-k keys")
    assert done.stdout.splitlines()[-1].endswith("python -m pytest -k keys"), done.stdout


@pytest.mark.slow
def test_every_command_of_the_readme_does_what_it_says(demo: Path) -> None:
    commands = find_commands()
    assert len(commands) > 10
    for command, expected in commands:
        if command in ("make demo", "make test", ". .venv/bin/activate"):
            continue  # the tests above, and the fixture
        assert command.startswith(("pairshard ", "sed ")), f"who runs {command}?"
        done = run_in(demo, "sh", "-c", command)
        assert done.returncode == expected, f"$ {command}\n{done.stdout}{done.stderr}"
    saved = sorted(path.suffix for path in (demo / "demo" / "42").iterdir())
    assert len(saved) == 2, saved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "check", "printed"),
    [
        (0, "print(image.dtype.name, image.shape[1:], mask.shape[1:])", "uint8 (360, 480, 3)"),
        (1, "", "offset"),
    ],
    ids=["reading", "index"],
)
def test_every_snippet_of_the_readme_runs(
    demo: Path, number: int, check: str, printed: str
) -> None:
    blocks = find_blocks(README, "python")
    assert len(blocks) == 2
    done = run_in(demo, sys.executable, "-c", f"{blocks[number]}\n{check}")
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_the_readmes_snippet_is_the_examples() -> None:
    example = (REPO / "examples" / "read_pairs.py").read_text(encoding="utf-8")
    lines = example.partition("# [reading]\n")[2].partition("# [end of reading]")[0].strip()
    assert find_blocks(README, "python")[0].startswith(f"{lines}\n\n\nfor image, mask in ")


def find_options(parser: argparse.ArgumentParser) -> set[str]:
    """All options of a parser and of its commands."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found |= find_options(command)
    return found


BENCHMARK = REPO / "benchmarks" / "build.py"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_option_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8")))
    of_others = {"--setup-file"}
    if path.name == "benchmarks.md":
        of_others |= set(re.findall(r"\"(--[a-z-]+)\"", BENCHMARK.read_text(encoding="utf-8")))
    assert named - find_options(make_parser()) - of_others == set()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    missing = [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists()
    ]
    assert missing == []


def test_every_file_that_contributing_names_exists() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+\.(?:py|md|txt|toml))", text)) - {"beam_pipeline/x.py"}
    homes = [REPO, REPO / "transforms", REPO / "transforms" / "core"]
    missing = {name for name in named if not any((home / name).exists() for home in homes)}
    assert missing == set()


def test_every_function_and_class_that_contributing_names_exists() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:\w+\.)?(\w*_\w+|[A-Z][a-z]\w+)[`(]", text))
    imagined = {"empty_mask", "check_ids"} | {name for name in named if name.endswith("_x")}
    of_beam = {"FnApiRunner", "DirectRunner"}
    code = "".join(
        path.read_text(encoding="utf-8") for name in PACKAGES for path in (REPO / name).glob("*.py")
    )
    missing = {
        name
        for name in named - imagined - of_beam
        if not re.search(rf"^ *(def |class )?{name}\b", code, re.MULTILINE)
    }
    assert {"encode_pair", "_compare_row", "RecordSettings"} <= named
    assert missing == set()


def test_reject_codes_are_those_of_the_program() -> None:
    text = (REPO / "docs" / "reject-codes.md").read_text(encoding="utf-8")
    rows = find_table(text, "code", "meaning", "what to do")
    assert [(code_names(code), meaning) for code, meaning, _ in rows] == [
        ([code], meaning) for code, meaning in REJECT_CODES.items()
    ]
    assert all(advice for _, _, advice in rows)


def test_exit_statuses_are_those_of_the_program() -> None:
    named = {int(row[0]) for row in find_table(README, "exit status", "")}
    known = {value for value in vars(status).values() if isinstance(value, int)}
    assert named == known - {status.TOO_MUCH_CHANGE}


def test_layout_names_the_features_of_each_payload() -> None:
    payload, found = "", {}
    for first, names, _ in find_table(LAYOUT, "payload", "feature", "holds"):
        payload = first or payload
        found.setdefault(payload, set()).update(code_names(names))
    assert found == {name: set(features) for name, features in FEATURES.items()}


def test_layout_names_what_the_mark_of_a_build_holds() -> None:
    start = LAYOUT.index("## .build.json")
    named = [name for row in find_table(LAYOUT[start:], "field", "") for name in code_names(row[0])]
    assert named == [field.name for field in fields(BuildMark)]


@pytest.mark.slow
def test_layout_names_every_column_of_the_index(demo: Path) -> None:
    index = pq.read_schema(demo / "demo" / "dataset" / "index" / "val-00000-of-00001.parquet")
    rows = find_table(LAYOUT, "column", "type", "")
    named = [name for row in rows for name in code_names(row[0])]
    assert sorted(named) == sorted(index.names)


@pytest.mark.slow
def test_layout_names_every_file_and_field(demo: Path) -> None:
    dataset = demo / "demo" / "dataset"
    assert sorted(path.name for path in dataset.iterdir() if path.suffix != ".tfrecord") == [
        "dataset.json",
        "index",
        "rejects.jsonl",
        "run.json",
    ]
    rows = find_table(LAYOUT[LAYOUT.index("## dataset.json") :], "field", "")
    named = [name for row in rows for name in code_names(row[0])]
    assert named == list(json.loads((dataset / "dataset.json").read_bytes()))
    run = LAYOUT.partition("## run.json")[2].partition("\n## ")[0]
    missing = [n for n in json.loads((dataset / "run.json").read_bytes()) if f"`{n}`" not in run]
    assert [name for name in missing if name != "rejects_left_out"] == []


def read_pins(text: str) -> dict[str, str]:
    """Package, in lower case, to version and marker, of lines such as NAME==VERSION."""
    found = re.findall(r"^ *\"?([\w.-]+)==([^\s\",]+)(.*)$", text, re.MULTILINE)
    return {name.lower(): version + rest.strip('", ') for name, version, rest in found}


def test_the_lock_and_setup_py_pin_the_same_decoders() -> None:
    lock = (REPO / "requirements.txt").read_text(encoding="utf-8")
    exact = read_pins((REPO / "setup.py").read_text(encoding="utf-8"))
    assert set(exact) == {"pillow", "pyarrow"}
    assert {name: read_pins(lock)[name] for name in exact} == exact


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_the_lock_pins_every_package_and_names_no_place(name: str) -> None:
    lines = (REPO / name).read_text(encoding="utf-8").splitlines()
    pin = re.compile(r'[\w.-]+==[\w.]+(; python_version (==|>=) "3\.1\d")?')
    others = [line for line in lines if line and line[0] != "#" and not pin.fullmatch(line)]
    assert others == ([] if name == "requirements.txt" else ["-r requirements.txt"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            'case "$2" in pass) ;; *) [ "$1" = -V ] && echo Python 3.9.2 || exit 1;; esac',
            "is Python 3.9.2; Python 3.10, 3.11, 3.12 or 3.13 is needed.",
        ),
        (
            'case "$2" in *ensurepip*) exit 1;; esac; [ "$1" != -V ] || echo Python 3.11.2',
            "(Python 3.11.2) can't make a virtual environment",
        ),
        ("exit 127", "does not run."),
    ],
    ids=["too old", "no ensurepip", "broken"],
)
def test_a_python_that_will_not_do_is_refused(tmp_path: Path, script: str, message: str) -> None:
    python = make_script(tmp_path / "python", script)
    done = run_make("setup", f"VENV={tmp_path}/venv", f"PYTHON={python}")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_a_wheel_holds_all_modules_and_a_working_command(tmp_path: Path) -> None:
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    for name in ("beam_pipeline", "launch", "transforms"):
        shutil.copytree(REPO / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "wheel", *alone, "-w", str(wheels), str(source)], check=True)
    (wheel,) = wheels.iterdir()
    modules = {
        str(path.relative_to(REPO)) for name in PACKAGES for path in (REPO / name).glob("*.py")
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert held == modules
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)],
        check=True,
    )
    done = subprocess.run(
        [target / "bin" / "pairshard", "--help"],
        env=os.environ | {"PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "build" in done.stdout
