"""Each exit status is reached; what is said is one clear line, and nothing is published."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import data_sets
import pytest
from conftest import REPO, Run

from transforms.core import files, writing
from transforms.core.child import Child


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["bild"], "invalid choice: 'bild'"),
        (["build"], "the following arguments are required: MANIFEST, --output"),
        (["verify"], "the following arguments are required: DIR"),
        (["manifest"], "the following arguments are required: FORM"),
        (["verify", "{tmp}/none"], "/none has no dataset.json; a data set's folder is meant"),
        (["verify", "{drawn}"], "has no dataset.json"),
        (["verify", "{raw}", "--source-root", "{tmp}/none"], "the source root {tmp}/none is not"),
        (["verify", "{raw}", "--fraction", "0"], "--fraction 0: a share above 0, at most 1"),
        (["verify", "{raw}", "--fraction", "1.1"], "--fraction 1.1: a share above 0, at most 1"),
        (["verify", "{raw}", "--shards", "0"], "--shards 0: at least one shard"),
        (["verify", "{raw}", "--all", "--fraction", "1"], "not allowed with argument --all"),
        (["manifest", "voc", "{drawn}", "--ids", "x"], "has no folder JPEGImages"),
        (["manifest", "dirs", "{drawn}/images", "{tmp}/none"], "there is no such folder"),
    ],
)
def test_wrong_use_of_a_command(words, said, run: Run, drawn: Path, raw: Path, tmp_path: Path):
    places = {"drawn": drawn, "raw": raw, "tmp": tmp_path}
    ran = run(*(word.format(**places) for word in words))
    assert ran.status == 2
    assert said.format(**places) in ran.err
    assert ran.err.startswith("pairshard: ")
    assert ran.err.count("\n") == 1
    assert ran.out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--out x", "unrecognized arguments: --out x"),
        ("--num 4", "unrecognized arguments: --num 4"),
        ("--payloads raw", "unrecognized arguments: --payloads raw; did you mean --payload?"),
        ("--payload jpeg", "--payload: invalid choice: 'jpeg'"),
        ("--verify some", "--verify: invalid choice: 'some'"),
        ("--runner spark", "--runner: invalid choice: 'spark'"),
        ("--manifest-format xml", "--manifest-format: invalid choice: 'xml'"),
        ("--seed x", "--seed: invalid int value: 'x'"),
        ("--compression gzip", "pictures gain nothing by it, and the index finds a record by its"),
        ("--compression=none", "--compression: shards are not compressed"),
        ("--num-shards 0", "--num-shards 0: a number from 1 to 99999"),
        ("--num-shards=-1", "--num-shards -1: a number from 1 to 99999"),
        ("--num-shards 100000", "--num-shards 100000: a number from 1 to 99999"),
        ("--num-shards four", "--num-shards four: a number from 1 to 99999"),
        ("--num-shards 4.5", "--num-shards 4.5: a number from 1 to 99999"),
        ("--num-shards train=", "--num-shards train=: a number from 1 to 99999"),
        ("--num-shards train=4,train=5", "--num-shards train=4,train=5: a number from 1 to"),
        ("--num-shards train=4,8", "one number for every split, or a name with each"),
        ("--num-shards 4,8", "--num-shards 4,8: a number"),
        ("--num-shards test=3 --split train=1", "test is none of the splits of --split train=1"),
        ("--num-shards 4 --shard-size 1MB", "not allowed with argument --num-shards"),
        ("--shard-size 0", "--shard-size 0: a size such as 256MiB or 1GB"),
        ("--shard-size MiB", "--shard-size MiB: a size such as"),
        ("--shard-size 12XB", "--shard-size 12XB: a size such as"),
        ("--shard-size 0.0001KB", "--shard-size 0.0001KB: a size such as"),
        ("--shard-size 1e9", "--shard-size 1e9: a size such as"),
        ("--split train=0.9", "the shares sum to 0.9; they must sum to 1"),
        ("--split train=0.5,val=0.6", "the shares sum to 1.1; they must sum to 1"),
        ("--split train", "'train' is none"),
        ("--split train=1,train=0", "'train=0' is none"),
        ("--split train=0.9,val=0.1,test=0", "'test=0' is none"),
        ("--split a/b=1", "'a/b=1' is none"),
        ("--split train=1/3,val=1/3,test=0.3333", "they must sum to 1"),
        ("--split train=-1,val=2", "'train=-1' is none"),
        ("--split-by colour", "has no column 'colour' of --split-by"),
        ("--max-rejects=-1", "--max-rejects -1: a number of rows (3) or a share (0.5%)"),
        ("--max-rejects 1.5", "--max-rejects 1.5: a number of rows"),
        ("--max-rejects 101%", "--max-rejects 101%: a number of rows"),
        ("--max-rejects few", "--max-rejects few: a number of rows"),
        ("--classes 0", "--classes 0: a number from 1 to 256"),
        ("--classes 257", "--classes 257: a number from 1 to 256"),
        ("--classes no-such-file", "--classes no-such-file: neither a number nor a readable"),
        ("--ignore-id 256", "--ignore-id 256: a number from 0 to 255"),
        ("--ignore-id=-1", "--ignore-id -1: a number from 0 to 255"),
        ("--max-pixels 0", "--max-pixels 0: a number from 1 to"),
        ("--max-pixels 600000000", "--max-pixels 600000000: a number from 1 to"),
        ("--threads=-1", "--threads -1: a number from 1 to 1024"),
        ("--workers 0", "--workers 0: a number from 1 to 1024"),
        ("--workers 1025", "--workers 1025: a number from 1 to 1024"),
        ("--replace-prefix x", "--replace-prefix x: OLD=NEW"),
        ("--source-root no-such-folder", "--source-root no-such-folder: there is no such folder"),
        ("-- --direct_num_worker=2", "--direct_num_worker: Beam has no such option; did you mean"),
        ("-- --direct_num_worker=2", "did you mean --direct_num_workers?"),
        ("-- --zzzzzzzz 1", "--zzzzzzzz: Beam has no such option\n"),
    ],
)
def test_wrong_options_of_build(options, said, run: Run, drawn: Path, tmp_path: Path):
    output = tmp_path / "set"
    ran = run("build", drawn / "pairs.csv", "--output", output, *options.split())
    assert ran.status == 2
    assert said in ran.err
    assert ran.err.startswith("pairshard: ")
    assert ran.err.count("\n") == 1
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("m.csv", b"", "m.csv: is empty"),
        ("m.csv", b"a,b\n1,2\n", "m.csv: the header has no column 'image'"),
        ("m.csv", b"image,mask,mask\n", "has the column 'mask' twice"),
        ("m.csv.gz", b"image,mask\na,b\n", "is not gzip, or is damaged"),
        ("m.tsv", b"image\tmask\n", "the ending '.tsv' names no format of a manifest"),
        ("m.jsonl", b"[1]\n", "none of its first lines is a JSON object with 'image', 'mask'"),
        ("m.csv", b"image,mask\n", "there is no row in"),
        ("m.txt", b"# nothing yet\n\n", "there is no row in"),
    ],
)
def test_wrong_manifests(name, data, said, build: Run, tmp_path: Path, publishes_nothing):
    (tmp_path / name).write_bytes(data)
    ran = build(tmp_path / name, tmp_path / "set")
    publishes_nothing(ran, tmp_path / "set", 2, said)
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["{tmp}/none.csv"], "none.csv: no such manifest"),
        (["{tmp}/*.csv"], "*.csv: no such manifest"),
        (["{drawn}"], "is a folder; name its manifests"),
        (["{drawn}/pairs.csv", "{tmp}/a.csv"], "the manifests lie in 2 folders"),
    ],
)
def test_manifests_that_are_not_there(given, said, build: Run, drawn: Path, tmp_path: Path):
    if "{tmp}/a.csv" in given:
        data_sets.write_csv(tmp_path / "a.csv", [])
    manifests = [path.format(drawn=drawn, tmp=tmp_path) for path in given]
    ran = build(manifests, tmp_path / "set")
    assert ran.status == 2
    assert said in ran.err
    assert not (tmp_path / "set").exists()


def test_an_unfinished_build_is_not_verified(drawn: Path, build: Run, run: Run, tmp_path: Path):
    rows = [*data_sets.read_rows(drawn / "pairs.csv")[:2], ["none.jpg", "none.png", "street"]]
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows, "image,mask,scene")
    assert build(manifest, tmp_path / "set", "--source-root", drawn).status == 3
    ran = run("verify", tmp_path / "set")
    assert ran.status == 2
    assert "has no dataset.json (an unfinished build: run it to its end)" in ran.err


def test_done(raw: Path, drawn: Path, run: Run):
    assert run("--help").status == 0
    assert run("build", "--help").status == 0
    assert run("manifest", "dirs", drawn / "images", drawn / "masks").status == 0


def test_verified(verify_here, raw: Path, encoded: Path, run: Run):
    for folder in (raw, encoded):
        seen = data_sets.look_at(folder)
        ran = run("verify", folder, "--all")
        assert ran.status == 0, ran.out
        assert ran.out.startswith("verified: 4 shards, 24 records read back, 24 compared with")
        assert data_sets.look_at(folder) == seen


def test_verification_failed(raw: Path, run: Run, tmp_path: Path):
    folder = Path(shutil.copytree(raw, tmp_path / "set"))
    (folder / "train-00001-of-00004.tfrecord").unlink()
    ran = run("verify", folder, "--fraction", "0.000001")
    assert ran.status == 1
    assert "train-00001-of-00004.tfrecord: train-00001-of-00004.tfrecord is missing" in ran.out
    assert ran.err == ""


@pytest.mark.parametrize(
    ("gate", "status"),
    [("0", 3), ("2", 3), ("3", 0), ("4", 0), ("9.99%", 3), ("10%", 0), ("100%", 0), ("0%", 3)],
)
def test_the_gate(gate, status, drawn: Path, build: Run, tmp_path: Path):
    # 30 rows, of which 3 are rejects: exactly 10 %.
    rows = [[*row[:2], row[0]] for row in data_sets.read_rows(drawn / "pairs.csv")]
    rows += [[row[0], row[1], f"again-{n}"] for n, row in enumerate(rows[:3])]
    rows += [["none.jpg", "none.png", f"none-{n}"] for n in range(3)]
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows, "image,mask,key")
    ran = build(manifest, tmp_path / "set", "--source-root", drawn, "--max-rejects", gate)
    assert ran.status == status
    assert data_sets.is_published(tmp_path / "set") == (status == 0)
    assert "rows: 30 read = 27 written + 3 rejected\n  missing_file: 3\n" in ran.out
    assert ran.out.count("missing_file: none.jpg: there is no such file") == 3
    assert ("not committed" in ran.out) == (status == 3)


def test_a_gate_that_is_not_passed_is_said_even_if_quiet(drawn: Path, build: Run, tmp_path: Path):
    manifest = data_sets.write_csv(tmp_path / "m.csv", [["none.jpg", "none.png"]])
    ran = build(manifest, tmp_path / "set", "--quiet")
    assert ran.status == 3
    assert "not committed: 1 rows were rejected" in ran.out


def test_quiet_says_nothing(drawn: Path, build: Run, tmp_path: Path):
    ran = build(drawn / "pairs.csv", tmp_path / "set", "--quiet")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for a part of a data set."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system can't be mounted here: see the test with a size limit")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, drawn: Path, build: Run, publishes_nothing):
    output = small_disk / "set"
    ran = build(drawn / "pairs.csv", output, "--num-shards", 4)
    publishes_nothing(ran, output, 5, "failed: No space left on device", "again is safe")
    assert ran.err.count("\n") == 2
    subprocess.run(["mount", "-o", "remount,size=2m", str(small_disk)], check=True)
    assert build(drawn / "pairs.csv", output, "--num-shards", 4).status == 0
    assert data_sets.read_json(output, "run.json")["shards"]["reused"] >= 1


def test_a_limit_of_size(drawn: Path, tmp_path: Path):
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    command = [sys.executable, "-m", "launch", "build", str(drawn / "pairs.csv")]
    command += ["--output", str(tmp_path / "set"), "--verify", "none"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=REPO, preexec_fn=limit
    )
    assert done.returncode == 5, done.stderr
    assert done.stderr == (
        f"pairshard: writing {tmp_path}/set/train-00000-of-00001.tfrecord failed: File too large\n"
        "pairshard: trying the same command again is safe\n"
    )
    assert not data_sets.is_published(tmp_path / "set")


@pytest.mark.parametrize("stage", ["shard", "index", "rejects.jsonl", "run.json", "dataset.json"])
def test_a_write_that_fails_at_any_stage(
    stage, monkeypatch, drawn: Path, raw: Path, build: Run, tmp_path: Path, publishes_nothing
):
    output, publish = tmp_path / "set", files.OutputFile.publish

    def publish_or_fail(self: files.OutputFile) -> None:
        name = os.path.relpath(self._final, output)
        known = {"shard": "train-00002-of-00004.tfrecord", "index": "index/train-00001-of-00004"}
        if name.startswith(known.get(stage, stage)):
            with files.place_errors(self._final):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        publish(self)

    with monkeypatch.context() as patched:
        patched.setattr(files.OutputFile, "publish", publish_or_fail)
        ran = build(drawn / "pairs.csv", output, "--num-shards", 4)
    publishes_nothing(ran, output, 5, "failed: Input/output error")
    assert ran.err.count("\n") == 2
    assert not any((output / ".pairshard-tmp").iterdir())
    assert build(drawn / "pairs.csv", output, "--num-shards", 4).status == 0
    assert data_sets.differing(output, raw) == []


def test_the_source_root_vanishes_in_the_middle(
    monkeypatch, sources: Path, raw: Path, build: Run, tmp_path: Path, publishes_nothing
):
    output, encode_row, calls = tmp_path / "set", writing.encode_row, []

    def encode_or_unmount(*given, **named):
        calls.append(given)
        if len(calls) == 12:
            sources.rename(tmp_path / "unmounted")
        return encode_row(*given, **named)

    command = (sources / "pairs.csv", output, "--num-shards", 4, "--threads", 1)
    with monkeypatch.context() as patched:
        patched.setattr(writing, "encode_row", encode_or_unmount)
        ran = build(*command, "--max-rejects", "100%")
    publishes_nothing(ran, output, 5, f"the source root {sources} is not there any more")
    assert ran.err.count("\n") == 2
    (tmp_path / "unmounted").rename(sources)
    assert build(*command).status == 0
    assert data_sets.read_json(output, "run.json")["shards"]["reused"] >= 1
    assert data_sets.differing(output, raw) == []


@pytest.mark.parametrize("place", ["a file/set", "a file"])
def test_an_output_that_is_a_file(place, drawn: Path, build: Run, tmp_path: Path):
    (tmp_path / "a file").write_text("mine")
    ran = build(drawn / "pairs.csv", tmp_path / place)
    message = f"pairshard: {tmp_path / place} is a file; a folder is meant as --output\n"
    assert (ran.status, ran.err) == (2, message)
    assert (tmp_path / "a file").read_text() == "mine"


def test_an_output_that_can_not_be_written(drawn: Path, build: Run):
    ran = build(drawn / "pairs.csv", "/proc/pairshard")
    assert ran.status == 5
    assert "/proc/pairshard failed: " in ran.err
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 2


def test_a_worker_process_that_is_killed(
    monkeypatch, drawn: Path, build: Run, tmp_path: Path, publishes_nothing
):
    class Killed(Child):
        def call(self, *given, **named):
            self._process.kill()
            return super().call(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr("transforms.core.child.Child", Killed)
        ran = build(drawn / "pairs.csv", tmp_path / "set", "--workers", 2)
    publishes_nothing(ran, tmp_path / "set", 5, "a worker process ended by signal 9")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_shows_its_traceback(workers, monkeypatch, drawn: Path, build: Run, tmp_path: Path):
    def break_down(*given, **named):
        raise ZeroDivisionError("a bug that a test put in")

    monkeypatch.setattr("transforms.write_tfrecord.write_shard", break_down)
    monkeypatch.setattr("transforms.write_tfrecord.write_shard_in_child", break_down)
    ran = build(drawn / "pairs.csv", tmp_path / "set", "--workers", workers)
    assert ran.status == 70
    assert "Traceback" in ran.err
    assert "ZeroDivisionError: a bug that a test put in" in ran.err
    assert "pairshard: this is a bug in pairshard; please report it" in ran.err
    assert not data_sets.is_published(tmp_path / "set")


def test_every_exception_that_is_not_caught_is_a_bug(monkeypatch, run: Run, tmp_path: Path):
    def break_down(*given):
        raise RecursionError("deep")

    monkeypatch.setattr("launch.command.options.parse_command_line", break_down)
    assert run("verify", tmp_path).status == 70
