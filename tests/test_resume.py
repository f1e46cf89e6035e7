"""A build that stopped goes on with the same command, and ends as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import data_sets
import killing
import pytest
from conftest import PAIRS, REPO, Ran, Run

from beam_pipeline import build as building
from beam_pipeline import output as outputs
from transforms.core import pairs

SLOW = pytest.mark.slow
SHARDS = 4
INDEX = "index/train-{:05d}-of-00004.parquet"
SHARD = "train-{:05d}-of-00004.tfrecord"


def counts(output: Path) -> dict[str, int]:
    return data_sets.read_json(output, "run.json")["shards"]


def go_on(build: Run, sources: Path, output: Path, *options: object) -> Ran:
    return build(sources / "pairs.csv", output, "--num-shards", SHARDS, *options)


def start_again(build: Run, drawn: Path, output: Path) -> None:
    ran = go_on(build, drawn, output)
    assert ran.status == 0, ran.err


@pytest.fixture(scope="module")
def stopped(drawn: Path, build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sources, of which one is empty, and of a build that stopped at the gate."""
    folder = tmp_path_factory.mktemp("stopped")
    shutil.copytree(drawn, folder / "sources")
    (folder / "sources" / "images" / "000004.jpg").write_bytes(b"")
    ran = go_on(build, folder / "sources", folder / "set")
    assert ran.status == 3
    return folder


@pytest.fixture
def gated(stopped: Path, sources: Path, tmp_path: Path) -> Path:
    """A build of four shards that stopped at the gate: one picture of `sources` is empty."""
    shutil.copy2(stopped / "sources" / "images" / "000004.jpg", sources / "images" / "000004.jpg")
    return Path(shutil.copytree(stopped / "set", tmp_path / "set"))


def look_at_shards(output: Path) -> dict[str, tuple[int, ...]]:
    """What building a shard again would change, by the names of shards and indexes."""
    seen = data_sets.look_at(output)
    names = [name.format(number) for number in range(SHARDS) for name in (SHARD, INDEX)]
    return {name: seen[str(output / name)] for name in names}


def broken_shard(output: Path) -> int:
    [reject] = [row for row in data_sets.read_all_indexes(output) if row["status"] == "rejected"]
    names = data_sets.shard_names(output)
    return next(n for n, s in enumerate(names) if reject in data_sets.read_index(output, s))


MOMENTS = [
    ("transforms.core.files:OutputFile.write", 9, True, 1),
    ("transforms.core.index:write_index", 2, True, 1),
    ("transforms.core.index:write_index", 2, False, 2),
    ("beam_pipeline.build:_reconcile", 1, True, 4),
    ("beam_pipeline.output:close_build", 1, True, 4),
    ("beam_pipeline.output:clear_build", 1, True, -1),
]


@pytest.mark.parametrize(
    ("target", "call", "before", "finished"),
    [
        MOMENTS[2],
        *(pytest.param(*MOMENTS[n], marks=SLOW) for n in (0, 1, 3, 4, 5)),
    ],
)
def test_a_build_that_was_killed_goes_on(
    target, call, before, finished, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    words = ["build", drawn / "pairs.csv", "--output", output, "--verify", "none"]
    words += ["--num-shards", SHARDS, "--workers", 1, "--threads", 2]
    assert killing.run_killed(words, target, call, before=before) == -signal.SIGKILL
    if finished < 0:  # the commit mark was written: the data set is whole
        assert data_sets.is_published(output)
        assert "up to date" in go_on(build, drawn, output).out
        assert set(data_sets.read_files(raw)) <= set(data_sets.read_files(output))
        return
    assert not data_sets.is_published(output)
    there = {n: s for n, s in data_sets.look_at(output).items() if n.endswith(".tfrecord")}
    if target != "transforms.core.files:OutputFile.write":
        assert len(list((output / "index").glob("*.parquet"))) == finished
    start_again(build, drawn, output)
    kept = counts(output)["reused"]
    assert counts(output) == {"built": SHARDS - kept, "reused": kept}
    if target != "transforms.core.files:OutputFile.write":
        assert kept == finished
    after = data_sets.look_at(output)
    assert sum(after[name] == seen for name, seen in there.items()) == kept
    assert data_sets.differing(output, raw) == []


@SLOW
def test_a_build_that_is_killed_again_and_again_ends_as_well(
    drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    words = ["build", drawn / "pairs.csv", "--output", output, "--verify", "none"]
    words += ["--num-shards", SHARDS, "--workers", 1, "--threads", 1]
    for _ in range(3):  # each of these runs finishes one shard more
        target = "transforms.core.index:write_index"
        assert killing.run_killed(words, target, 1, before=False) == -signal.SIGKILL
    start_again(build, drawn, output)
    assert counts(output) == {"built": 1, "reused": 3}
    assert data_sets.differing(output, raw) == []


def test_an_interrupted_build_says_what_to_run_next(
    drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output, err = tmp_path / "set", tmp_path / "err"
    words = ["build", drawn / "pairs.csv", "--output", output, "--verify", "none"]
    words += ["--num-shards", SHARDS, "--workers", 1, "--threads", 1]
    status = killing.run_interrupted(words, lambda: any(output.glob("index/*.parquet")), err)
    assert status == 130
    assert not data_sets.is_published(output)
    said = err.read_text("utf-8")
    assert "interrupted; nothing was published. The same command goes on" in said
    assert "Traceback" not in said
    start_again(build, drawn, output)
    assert counts(output)["reused"] >= 1
    assert data_sets.differing(output, raw) == []


@SLOW
@pytest.mark.parametrize(
    ("sent", "status", "workers"),
    [(signal.SIGINT, 130, 1), (signal.SIGINT, 130, 2), (signal.SIGKILL, -9, 2)],
)
def test_the_command_itself_can_be_ended_at_any_time(
    sent, status, workers, drawn: Path, build: Run, tmp_path: Path
):
    rows = [
        [*row[:2], f"{row[0]}-{n}"]
        for row in data_sets.read_rows(drawn / "pairs.csv")
        for n in range(400)
    ]
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows, "image,mask,key")
    output = tmp_path / "set"
    given = ["--num-shards", "16", "--source-root", str(drawn), "--workers", str(workers)]
    command = [sys.executable, "-m", "launch", "build", str(manifest), "--output", str(output)]
    process = subprocess.Popen(
        [*command, "--verify", "none", *given], stderr=subprocess.PIPE, text=True, cwd=REPO
    )
    while not list(output.glob("index/*.parquet")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(sent)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == status, said
    assert not data_sets.is_published(output)
    assert "Traceback" not in said
    assert build(manifest, output, *given).status == 0
    assert counts(output)["reused"] >= 1
    assert build(manifest, tmp_path / "undisturbed", *given).status == 0
    assert data_sets.differing(output, tmp_path / "undisturbed") == []


def test_a_higher_gate_commits_without_building_a_shard(gated: Path, sources: Path, build: Run):
    seen = look_at_shards(gated)
    ran = go_on(build, sources, gated, "--max-rejects", 1)
    assert ran.status == 0
    assert "rows: 24 read = 23 written + 1 rejected" in ran.out
    assert counts(gated) == {"built": 0, "reused": SHARDS}
    assert look_at_shards(gated) == seen
    assert sorted(path.name for path in gated.iterdir()) == [
        "dataset.json",
        "index",
        "rejects.jsonl",
        "run.json",
        *data_sets.shard_names(gated),
    ]


def test_what_stopped_at_the_gate_tells_what_was_found_and_what_to_do(
    sources: Path, build: Run, tmp_path: Path
):
    (sources / "images" / "000004.jpg").write_bytes(b"")
    ran = go_on(build, sources, tmp_path / "set")
    assert ran.status == 3
    assert f"{sources}/pairs.csv:6: empty_file: images/000004.jpg: has no bytes" in ran.out
    assert "accept them with --max-rejects 1" in ran.out
    assert not data_sets.is_published(tmp_path / "set")
    [reject] = data_sets.read_rejects(tmp_path / "set")
    assert reject["key"] == "images/000004.jpg"
    assert data_sets.read_json(tmp_path / "set", "run.json")["rejects"] == [
        {
            "manifest": f"{sources}/pairs.csv",
            "line": 6,
            "code": "empty_file",
            "key": "images/000004.jpg",
        }
    ]


def test_a_mended_file_is_built_with_its_shard(
    gated: Path, sources: Path, drawn: Path, raw: Path, build: Run
):
    number = broken_shard(gated)
    seen = look_at_shards(gated)
    shutil.copy2(drawn / "images" / "000004.jpg", sources / "images" / "000004.jpg")
    assert go_on(build, sources, gated).status == 0
    assert counts(gated) == {"built": 1, "reused": SHARDS - 1}
    after = look_at_shards(gated)
    touched = {name for name in seen if after[name] != seen[name]}
    assert touched == {SHARD.format(number), INDEX.format(number)}
    assert data_sets.differing(gated, raw) == []


def test_a_missing_file_that_has_come_is_built_with_its_shard(
    sources: Path, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    (sources / "masks" / "000009.png").unlink()
    assert go_on(build, sources, tmp_path / "set").status == 3
    shutil.copy2(drawn / "masks" / "000009.png", sources / "masks" / "000009.png")
    start_again(build, sources, tmp_path / "set")
    assert counts(tmp_path / "set") == {"built": 1, "reused": SHARDS - 1}
    assert data_sets.differing(tmp_path / "set", raw) == []


@pytest.mark.parametrize("change", [pytest.param("touch", marks=SLOW), "rewrite", "remove"])
def test_a_changed_source_is_built_again(change, gated: Path, sources: Path, build: Run, tmp_path):
    key = data_sets.keys_of(gated, SHARD.format(0))[0]
    if change == "touch":
        os.utime(sources / key, ns=(1, 1))
    elif change == "rewrite":
        shutil.copyfile(sources / "images" / "000001.jpg", sources / key)
    else:
        (sources / key).unlink()
    assert go_on(build, sources, gated, "--max-rejects", 2).status == 0
    assert counts(gated) == {"built": 1, "reused": SHARDS - 1}
    assert go_on(build, sources, tmp_path / "new", "--max-rejects", 2).status == 0
    assert data_sets.differing(gated, tmp_path / "new") == []


def test_a_shard_whose_bytes_changed_when_a_run_was_killed_is_built_again(
    drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    words = ["build", drawn / "pairs.csv", "--output", output, "--verify", "none"]
    words += ["--num-shards", SHARDS]
    target = "beam_pipeline.build:_reconcile"
    assert killing.run_killed(words, target, 1, before=True) == -signal.SIGKILL
    flip(output / SHARD.format(2), 100)  # what a loss of power may do
    start_again(build, drawn, output)
    assert counts(output) == {"built": 1, "reused": SHARDS - 1}
    assert data_sets.differing(output, raw) == []


@pytest.mark.parametrize(
    "harm",
    ["cut", "index", *(pytest.param(n, marks=SLOW) for n in ("gone", "index gone", "index cut"))],
)
def test_a_shard_that_is_not_whole_is_built_again(
    harm, gated: Path, sources: Path, drawn: Path, raw: Path, build: Run
):
    number = (broken_shard(gated) + 1) % SHARDS
    shard, index = gated / SHARD.format(number), gated / INDEX.format(number)
    if harm == "cut":
        os.truncate(shard, shard.stat().st_size - 1)
    elif harm == "index cut":
        os.truncate(index, index.stat().st_size // 2)
    elif harm == "index":
        index.write_bytes(b"nothing of ours")
    else:
        (index if harm == "index gone" else shard).unlink()
    shutil.copy2(drawn / "images" / "000004.jpg", sources / "images" / "000004.jpg")
    assert go_on(build, sources, gated).status == 0
    assert counts(gated) == {"built": 2, "reused": SHARDS - 2}
    assert data_sets.differing(gated, raw) == []


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "options",
    [
        ("--payload", "encoded"),
        ("--seed", 1),
        ("--ignore-id", 7),
        ("--classes", 11),
        ("--max-pixels", 5000),
        ("--split", "train=0.5,val=0.5"),
        ("--num-shards", 8),
        ("--allow-outside-root",),
    ],
)
def test_an_unfinished_build_with_other_settings_is_refused(
    options, gated: Path, sources: Path, run: Run
):
    seen = {n: s for n, s in data_sets.look_at(gated).items() if not n.endswith((".lock", "/set"))}
    given = ["--num-shards", SHARDS] if "--num-shards" not in options else []
    command = ["build", sources / "pairs.csv", "--output", gated, "--verify", "none"]
    ran = run(*command, *given, *options)
    assert ran.status == 2
    assert "holds an unfinished build with other settings" in ran.err
    after = data_sets.look_at(gated)
    assert {name: after[name] for name in seen} == seen


def test_before_the_first_shard_the_settings_may_be_mended(sources: Path, build: Run, tmp_path):
    output = tmp_path / "set"
    empty = data_sets.write_csv(tmp_path / "empty.csv", [])
    assert build(empty, output, "--seed", 3).status == 2
    assert build(sources / "pairs.csv", output).status == 0


def test_a_folder_of_something_else_is_refused_and_not_touched(
    drawn: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "photos"
    (output / "more").mkdir(parents=True)
    (output / "thesis.txt").write_text("years of work")
    seen = data_sets.look_at(output)
    ran = build(drawn / "pairs.csv", output)
    assert ran.status == 2
    assert "is not empty and holds no build of pairshard (more, thesis.txt)" in ran.err
    assert data_sets.look_at(output) == seen


@pytest.mark.parametrize("data", [b"{}", b"[]", b"no json", b'{"format_version": 99}'])
def test_a_dataset_json_of_another_make_is_refused_and_not_touched(
    data, drawn: Path, run: Run, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    output.mkdir()
    (output / "dataset.json").write_bytes(data)
    seen = data_sets.look_at(output)
    for ran in (build(drawn / "pairs.csv", output), run("verify", output)):
        assert ran.status == 2
        assert str(output) in ran.err
    assert data_sets.look_at(output) == seen


@pytest.mark.parametrize("options", [(), ("--threads", 1, "--max-rejects", 5)])
def test_a_finished_data_set_is_up_to_date_and_not_touched(
    options, drawn: Path, raw: Path, build: Run
):
    seen = data_sets.look_at(raw)
    ran = go_on(build, drawn, raw, *options)
    assert ran.status == 0, ran.err
    assert f"{raw}: up to date" in ran.out
    assert data_sets.look_at(raw) == seen


def test_up_to_date_accounts_for_all_rows(drawn: Path, build: Run, tmp_path: Path):
    rows = [*data_sets.read_rows(drawn / "pairs.csv")][:2]
    manifest = data_sets.write_csv(tmp_path / "m.csv", [*(row[:2] for row in rows), ["no row"]])
    given = (manifest, tmp_path / "set", "--source-root", drawn, "--max-rejects", 1)
    account = "rows: 3 read = 2 written + 1 rejected\n  bad_row: 1\n"
    assert account in build(*given).out
    again = build(*given).out
    assert "up to date" in again
    assert account in again


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--payload", "encoded"), "other settings (payload)"),
        (("--seed", 1), "other settings (seed)"),
        (("--classes", 11), "other settings (classes)"),
    ],
)
def test_a_finished_data_set_with_other_settings_is_refused(
    options, said, drawn: Path, raw: Path, build: Run
):
    seen = data_sets.look_at(raw)
    ran = go_on(build, drawn, raw, *options)
    assert ran.status == 2
    assert said in ran.err
    assert data_sets.look_at(raw) == seen


@pytest.mark.parametrize(
    "change",
    ["a row less", "a source", "a number of shards", pytest.param("a row more", marks=SLOW)],
)
def test_a_finished_data_set_whose_rows_changed_is_refused(
    change, sources: Path, raw: Path, build: Run, tmp_path: Path
):
    rows = data_sets.read_rows(sources / "pairs.csv")
    number = SHARDS
    if change == "a row less":
        rows.pop()
    elif change == "a row more":
        rows.append(["images/nothing.jpg", "masks/nothing.png", "street"])
    elif change == "a source":
        shutil.copyfile(sources / "images/000001.jpg", sources / "images/000002.jpg")
    else:
        number = 8
    manifest = data_sets.write_csv(tmp_path / "m.csv", rows, "image,mask,scene")
    seen = data_sets.look_at(raw)
    ran = build(manifest, raw, "--num-shards", number, "--source-root", sources)
    assert ran.status == 2
    assert "it is not touched" in ran.err
    assert data_sets.look_at(raw) == seen


def test_shards_of_another_number_are_cleared_when_the_build_is_committed(
    drawn: Path, build: Run, tmp_path: Path
):
    rows = [[*row[:2], row[0]] for row in data_sets.read_rows(drawn / "pairs.csv")]
    lost = ["images/lost.jpg", "masks/lost.png", "lost"]
    given = ("--source-root", drawn, "--shard-size", "50KB")
    manifest = data_sets.write_csv(tmp_path / "m.csv", [*rows, lost], "image,mask,key")
    assert build(manifest, tmp_path / "set", *given).status == 3
    assert len(data_sets.shard_names(tmp_path / "set")) == 4
    more = [[image, mask, f"{key}-{n}"] for image, mask, key in rows for n in range(2)]
    data_sets.write_csv(manifest, [*rows, *more], "image,mask,key")
    assert build(manifest, tmp_path / "set", *given).status == 0
    assert len(data_sets.shard_names(tmp_path / "set")) == 16
    assert build(manifest, tmp_path / "new", *given).status == 0
    assert data_sets.differing(tmp_path / "set", tmp_path / "new") == []


def test_nothing_of_the_users_is_deleted_when_a_build_goes_on(
    gated: Path, sources: Path, build: Run
):
    notes = {"notes.txt": b"mine", "index/mine.txt": b"too", "train-old.tfrecord": b"as well"}
    notes |= {
        f"{name}-00000-of-00001.tfrecord": b"mine" for name in ("holdout", "copy/train", "train")
    }
    (gated / "copy").mkdir()
    for name, data in notes.items():
        (gated / name).write_bytes(data)
    assert go_on(build, sources, gated, "--max-rejects", 1).status == 0
    assert {name: (gated / name).read_bytes() for name in notes} == notes


def test_only_one_run_at_a_time_holds_the_output(drawn: Path, build: Run, tmp_path: Path):
    output = tmp_path / "set"
    with outputs.hold_output(str(output)):
        seen = data_sets.look_at(output)
        ran = go_on(build, drawn, output)
        assert ran.status == 6
        assert ran.err == (
            f"pairshard: {output} is held by process {os.getpid()} on {os.uname().nodename}; "
            "wait for it to end\n"
        )
        assert data_sets.look_at(output) == seen
    start_again(build, drawn, output)


def test_a_dead_runs_hold_is_no_hold(drawn: Path, build: Run, tmp_path: Path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / ".pairshard.lock").write_text("process 1 on another machine")
    start_again(build, drawn, tmp_path / "set")


def wrong_ids_of(key: str, encode):
    """Encodes as the product does, but one pair's mask with another id in its first pixel."""

    def encode_pair(paths, sources, settings, **named):
        record = encode(paths, sources, settings, **named)
        if paths[0] != key:
            return record
        data = bytearray(b"".join(record.pieces))
        at = data.index(b"mask_raw") + 20
        data[at] ^= 1
        return replace(record, pieces=[bytes(data)], crc32c=pairs.crc32c_of([bytes(data)]))

    return encode_pair


def test_a_wrong_record_is_not_committed_and_its_shard_is_built_again(
    verify_here, monkeypatch, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output, key = tmp_path / "set", "images/000007.jpg"
    with monkeypatch.context() as patched:
        wrong = wrong_ids_of(key, pairs.encode_pair)
        patched.setattr("transforms.core.writing.encode_pair", wrong)
        ran = go_on(build, drawn, output, "--verify", "sample")
    assert ran.status == 1
    assert not data_sets.is_published(output)
    [shard] = [n for n in data_sets.shard_names(raw) if key in data_sets.keys_of(raw, n)]
    assert f"wrong: {shard} at " in ran.out
    assert f"({key}): mask_raw: 1 of 1728 values differ from masks/000007.png, first at" in ran.out
    assert "the shards named above are built anew" in ran.out
    ran = go_on(build, drawn, output, "--verify", "sample")
    assert ran.status == 0, ran.out
    assert counts(output) == {"built": 1, "reused": SHARDS - 1}
    verified = data_sets.read_json(output, "run.json")["verification"]
    assert verified["records"] == verified["compared"] == len(data_sets.keys_of(raw, shard))
    assert data_sets.differing(output, raw) == []


def test_a_shard_that_is_spoilt_before_it_is_verified_is_not_committed(
    verify_here, monkeypatch, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output, run_verify = tmp_path / "set", building.run_verify

    def spoil_and_verify(*given: object):
        flip(output / SHARD.format(1), 50)
        return run_verify(*given)

    with monkeypatch.context() as patched:
        patched.setattr(building, "run_verify", spoil_and_verify)
        ran = go_on(build, drawn, output, "--verify", "all")
    assert ran.status == 1
    assert f"wrong: {SHARD.format(1)} at 0 (" in ran.out
    assert "the CRC of the data (6993 bytes) is wrong" in ran.out
    assert not data_sets.is_published(output)
    assert go_on(build, drawn, output, "--verify", "all").status == 0
    assert counts(output) == {"built": 1, "reused": SHARDS - 1}
    assert data_sets.differing(output, raw) == []


def test_a_source_that_changes_while_it_is_built_is_not_committed(
    verify_here, monkeypatch, sources: Path, build: Run, tmp_path: Path
):
    output, run_verify = tmp_path / "set", building.run_verify

    def change_and_verify(*given: object):
        shutil.copyfile(sources / "images/000001.jpg", sources / "images/000002.jpg")
        return run_verify(*given)

    with monkeypatch.context() as patched:
        patched.setattr(building, "run_verify", change_and_verify)
        ran = go_on(build, sources, output, "--verify", "sample")
    assert ran.status == 1
    assert "source changed: train-0000" in ran.out
    assert "(images/000002.jpg): images/000002.jpg is not the file of the build: " in ran.out
    assert not data_sets.is_published(output)
    assert go_on(build, sources, output, "--verify", "sample").status == 0
    assert counts(output) == {"built": 1, "reused": SHARDS - 1}
    assert go_on(build, sources, tmp_path / "new").status == 0
    assert data_sets.differing(output, tmp_path / "new") == []


def test_verified_shards_are_not_verified_again(
    verify_here, sources: Path, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    (sources / "images" / "000004.jpg").write_bytes(b"")
    assert go_on(build, sources, output, "--verify", "sample").status == 3
    verified = data_sets.read_json(output, "run.json")["verification"]
    assert (verified["records"], verified["compared"]) == (PAIRS - 1, PAIRS - 1)
    assert go_on(build, sources, output, "--verify", "sample").status == 3
    verified = data_sets.read_json(output, "run.json")["verification"]
    assert (verified["records"], verified["compared"]) == (0, 0)
    number = broken_shard(output)
    shutil.copy2(drawn / "images" / "000004.jpg", sources / "images" / "000004.jpg")
    assert go_on(build, sources, output, "--verify", "sample").status == 0
    verified = data_sets.read_json(output, "run.json")["verification"]
    assert verified["records"] == len(data_sets.keys_of(output, SHARD.format(number)))
    assert data_sets.differing(output, raw) == []


def test_another_way_of_verifying_verifies_all_again(
    verify_here, sources: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    (sources / "images" / "000004.jpg").write_bytes(b"")
    assert go_on(build, sources, output, "--verify", "sample").status == 3
    assert go_on(build, sources, output, "--verify", "all").status == 3
    verified = data_sets.read_json(output, "run.json")["verification"]
    assert verified == {"mode": "all", "records": 23, "compared": 23, "failures": 0}
