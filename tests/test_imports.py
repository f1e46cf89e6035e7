"""Imports only point right, and what is slow to import is imported only where it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO

LAYERS = ("transforms.core", "transforms", "beam_pipeline", "launch")
"""From the right to the left: each may import itself and those before it."""

SOURCES = sorted(
    path
    for layer in ("transforms", "beam_pipeline", "launch")
    for path in (REPO / layer).rglob("*.py")
)


def name_of(path: Path) -> str:
    return path.relative_to(REPO).with_suffix("").as_posix().replace("/", ".")


def layer_of(module: str) -> int | None:
    names = module.split(".")
    if names[:2] == ["transforms", "core"]:
        return 0
    return LAYERS.index(names[0]) if names[0] in LAYERS else None


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(module, whether the import stands inside a function) of each import of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found += [(f"{node.module}.{alias.name}", id(node) in inside) for alias in node.names]
    return found


def importers_of(package: str) -> set[str]:
    return {
        name_of(path)
        for path in SOURCES
        if any(module.split(".")[0] == package for module, _ in imports_of(path))
    }


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_only_point_right(path: Path):
    own = layer_of(name_of(path))
    for module, _ in imports_of(path):
        layer = layer_of(module)
        assert layer is None or (own is not None and layer <= own), f"{path} imports {module}"
        assert module.split(".")[0] not in ("tests", "examples", "benchmarks")


def test_the_core_imports_no_beam():
    assert not {name for name in importers_of("apache_beam") if name.startswith("transforms.core")}


def test_what_one_module_alone_may_import():
    assert importers_of("PIL") == {"transforms.core.images", "transforms.core.comparing"}
    assert importers_of("hashlib") == {"transforms.core.keys", "transforms.core.files"}
    assert importers_of("tqdm") == {"beam_pipeline.progress_line"}
    assert not importers_of("random") | importers_of("uuid")


def test_tensorflow_is_imported_inside_functions_alone():
    assert importers_of("tensorflow") == {"transforms.core.comparing"}
    for path in SOURCES:
        for module, inside in imports_of(path):
            assert inside or module.split(".")[0] != "tensorflow"


def test_the_packages_import_nothing_by_themselves():
    for name in ("transforms", "transforms/core", "beam_pipeline", "launch"):
        assert imports_of(REPO / name / "__init__.py") == []


def loaded_by(code: str, *arguments: object) -> set[str]:
    """The modules that are loaded after some code, each by its first name."""
    code += "\nprint(*{m.split('.')[0] for m in sys.modules}, file=sys.stderr)"
    return set(run_code(code, *arguments)[-1].split())


def run_code(code: str, *arguments: object) -> list[str]:
    """Runs code in a process of its own; returns the lines of its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPO,
    )
    return done.stderr.splitlines()


RUN = """
from launch.command import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
assert not status, status
"""


@pytest.mark.parametrize("words", [("--help",), ("build", "--help"), ("verify", "--help")])
def test_help_loads_nothing_slow(words: tuple[str, ...]):
    slow = {"apache_beam", "numpy", "pyarrow", "tensorflow", "pandas", "grpc", "tqdm"}
    assert not loaded_by(RUN, *words) & slow


TENSORFLOW = {"tensorflow", "keras", "tensorboard"}


def test_a_build_without_verification_loads_no_tensorflow(drawn: Path, tmp_path: Path):
    words = ["build", drawn / "pairs.csv", "--output", tmp_path / "set", "--verify", "none"]
    loaded = loaded_by(RUN, *words, "--quiet", "--workers", 1)
    assert loaded >= {"apache_beam", "PIL"}
    assert not loaded & TENSORFLOW


ASK_CHILDREN = """
sys.path.append(sys.argv.pop(1))
import modules_here
from transforms.core.child import Child

def call_and_ask(self, *given, call=Child.call, **named):
    result = call(self, *given, **named)
    names = call(self, modules_here.names)
    sys.stderr.write(" ".join(["child:", *names]) + "\\n")  # one write: threads take turns
    return result

Child.call = call_and_ask
"""


def test_no_child_of_a_build_loads_tensorflow_or_beam(drawn: Path, tmp_path: Path):
    (tmp_path / "modules_here.py").write_text("import sys\ndef names(note): return [*sys.modules]")
    words = ["build", drawn / "pairs.csv", "--output", tmp_path / "set", "--verify", "none"]
    words += ["--quiet", "--workers", 2, "--num-shards", 4]
    said = run_code(ASK_CHILDREN + RUN, tmp_path, *words)
    answers = [set(line.split()) for line in said if line.startswith("child: ")]
    assert len(answers) == 4
    for loaded in answers:  # after a shard was written
        assert loaded >= {"PIL.Image", "pyarrow.parquet", "transforms.core.writing"}
        assert not loaded & (TENSORFLOW | {"apache_beam"})


def test_a_training_job_loads_no_beam():
    code = "from transforms.core import examples, keys, shards, tfrecord"
    assert not loaded_by(code) & {"apache_beam", "tensorflow", "pyarrow", "grpc"}
