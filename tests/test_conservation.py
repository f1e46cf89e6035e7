"""Rows read = records written + rows rejected, whatever the rows are, or the build fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import damage
import data_sets
import pytest
from conftest import Run

from transforms import assign_shards, reject_duplicates
from transforms.core import writing

BAD_LINES = ("alone", "one,too,many,cells", ",masks/000000.png", '"never closed,x', "a,b\\\\\0.png")


def spoil(sources: Path, seed: int) -> Iterator[tuple[list[str], frozenset[str]]]:
    """Yields rows of damaged files, with the codes that each may have ('': none)."""
    chance = random.Random(seed)
    image, mask = "images/000000.jpg", "masks/000000.png"
    for is_mask in (False, True):
        data = (sources / (mask if is_mask else image)).read_bytes()
        found = list(damage.damages(data, seed, mask=is_mask))
        for harmed in chance.sample(found, 20):
            name = f"{'masks' if is_mask else 'images'}/{harmed.name}-{is_mask}"
            (sources / name).write_bytes(harmed.data)
            codes = harmed.codes | ({""} if harmed.may_pass else set())
            yield ([image, name, name] if is_mask else [name, mask, name]), codes


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, ("--num-shards", 3, "--payload", "encoded")),
        (2, ("--num-shards", 8, "--workers", 2, "--split", "train=0.6,val=0.4")),
        (3, ("--threads", 1, "--", "--direct_runner_bundle_repeat=1")),
    ],
)
def test_every_row_is_a_record_or_a_reject(
    seed, options, sources: Path, build: Run, tmp_path: Path
):
    good = [[*row[:2], row[0]] for row in data_sets.read_rows(sources / "pairs.csv")]
    harmed = list(spoil(sources, seed))
    chance = random.Random(seed)
    rows = [*good, *(row for row, _ in harmed)]
    rows += [["images/none.jpg", "masks/none.png", "none"], ["../x", "/y", "outside"]]
    twice = chance.choices(rows, k=9)
    lines = [",".join(row) for row in rows + twice] + chance.choices(BAD_LINES, k=7)
    chance.shuffle(lines)
    manifest = tmp_path / "m.csv"
    manifest.write_text("image,mask,key\n" + "\n".join(lines) + "\n", "utf-8", newline="\n")
    output = tmp_path / "set"
    ran = build(manifest, output, "--source-root", sources, "--max-rejects", "100%", *options)
    assert ran.status == 0, ran.err

    counted = data_sets.read_json(output, "dataset.json")["rows"]
    rejected = counted["rejected"]
    assert counted["read"] == len(lines)
    assert counted["written"] + sum(rejected.values()) == len(lines)
    assert (rejected["bad_row"], rejected["duplicate_key"]) == (7, 9)

    index = data_sets.read_all_indexes(output)
    assert Counter(row["key"] for row in index) == Counter(row[2] for row in rows + twice)
    assert len(index) + 7 == len(lines)
    records = [r for path in output.glob("*.tfrecord") for r in data_sets.read_records(path)]
    assert len(records) == counted["written"]
    codes = {row["key"]: row["code"] for row in index if row["code"] != "duplicate_key"}
    assert {codes[row[2]] for row in good} == {""}
    for row, expected in harmed:
        assert codes[row[2]] in expected, row[2]

    listed = data_sets.read_rejects(output)
    assert Counter(reject["code"] for reject in listed) == rejected
    assert Counter(row["code"] for row in index if row["code"]) + Counter(bad_row=7) == rejected


def lose_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    order = assign_shards._order

    def lose(group, seed):
        task = order(group, seed)
        return type(task)(task.shard, task.rows[:-1])

    monkeypatch.setattr(assign_shards, "_order", lose)


def double_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = reject_duplicates._mark

    def double(bucket):
        rows = list(mark(bucket))
        return [*rows, rows[0]]

    monkeypatch.setattr(reject_duplicates, "_mark", double)


def lose_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = writing._ShardWriter.finish

    def lose(self, task, name, digest):
        info = finish(self, task, name, digest)
        return writing.replace(info, records=info.records - 1)

    monkeypatch.setattr(writing._ShardWriter, "finish", lose)


def lose_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    from beam_pipeline import build as building  # noqa: PLC0415 - the fixture has this name

    infos = building._infos
    monkeypatch.setattr(building, "_infos", lambda accounts: infos(accounts)[1:])


@pytest.mark.parametrize("inject", [lose_a_row, double_a_row, lose_a_record, lose_a_shard])
def test_a_lost_or_doubled_row_fails_the_build(
    inject, monkeypatch, drawn: Path, raw: Path, build: Run, tmp_path: Path
):
    output = tmp_path / "set"
    command = (drawn / "pairs.csv", output, "--num-shards", 4)
    with monkeypatch.context() as patched:
        inject(patched)
        ran = build(*command, "--max-rejects", "100%")
    assert ran.status == 70
    assert "ReconcileError: rows were lost or counted twice (files, counters): " in ran.err
    assert "pairshard: this is a bug in pairshard; please report it" in ran.err
    assert not data_sets.is_published(output)
