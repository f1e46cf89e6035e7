"""The data set's folder: whose it is, in what state, and how a build of it ends.

`.build.json` is there from before the job until dataset.json is written and marks an
unfinished build; dataset.json comes last and is the commit mark. Nothing is deleted that this
program did not make.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from transforms.core import files
from transforms.core.errors import ConfigError, HeldError, PlaceError
from transforms.core.index import IndexFileError, read_info
from transforms.core.reports import DATASET, REJECTS, RUN
from transforms.core.settings import FORMAT_VERSION
from transforms.core.shards import (
    BUILDING_SUFFIX,
    INDEX_DIR,
    INDEX_SUFFIX,
    SUFFIX,
    index_name,
)

MARK = ".build.json"
LOCK = ".pairshard.lock"
ACCOUNTS = ".parts"


@dataclass(slots=True)
class BuildMark:
    """What `.build.json` says of an unfinished build.

    Attributes:
      settings_digest: a build with another one can't go on here.
      settings: what the digest stands for, by name, to say what differs.
      in_order: whether the last run ended by its own decision; if not, finished shards are
        read once more before they are kept.
      verified: by shard, its crc32c and how it was verified: it is not verified again.
    """

    settings_digest: str
    settings: dict[str, str] = field(default_factory=dict)
    in_order: bool = True
    verified: dict[str, list[str]] = field(default_factory=dict)


@contextmanager
def hold_output(folder: str) -> Iterator[None]:
    """Keeps other runs out of a folder; the kernel lets go of it however this process ends.

    Raises:
      ConfigError: it holds something else, in which not even a lock may be put.
      HeldError: another run holds it.
    """
    _check_ours(folder)
    with files.place_errors(folder):
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another run"
            raise HeldError(f"{folder} is held by {holder}; wait for it to end") from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.close(descriptor)


def read_dataset_json(folder: str) -> dict[str, object] | None:
    """Returns dataset.json, or None where there is none.

    Raises:
      ConfigError: it is none of ours, or of another version.
    """
    data = files.read_file(os.path.join(folder, DATASET))
    if data is None:
        return None
    try:
        dataset = json.loads(data)
        version = dataset["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}/{DATASET} is not one of pairshard's: {error}") from error
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{folder} has format version {version}; this pairshard reads {FORMAT_VERSION}. "
            "Use the version that made it, or build it anew"
        )
    assert isinstance(dataset, dict)
    return dataset


def open_dataset(folder: str) -> dict[str, object]:
    """Returns dataset.json; raises ConfigError where there is none, or none of ours."""
    dataset = read_dataset_json(folder)
    if dataset is None:
        hint = " (an unfinished build: run it to its end)" if read_mark(folder) else ""
        raise ConfigError(f"{folder} has no {DATASET}{hint}; a data set's folder is meant")
    return dataset


def read_mark(folder: str) -> BuildMark | None:
    """Returns the mark of an unfinished build, or None where there is none."""
    data = files.read_file(os.path.join(folder, MARK))
    if data is None:
        return None
    try:
        mark = json.loads(data)
        del mark["format_version"]
        return BuildMark(**mark)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder}/{MARK} can't be read ({error}); remove the folder, or give another --output"
        ) from error


def write_mark(folder: str, mark: BuildMark) -> None:
    """Marks the folder as an unfinished build of ours."""
    content = {"format_version": FORMAT_VERSION, **asdict(mark)}
    files.write_file(folder, MARK, json.dumps(content, indent=1).encode())


def open_build(folder: str, settings_digest: str, settings: dict[str, str]) -> BuildMark:
    """Begins a build in a folder without dataset.json, or goes on with an unfinished one.

    Returns:
      The mark as the last run left it, or a new one. It is written already, as not in order.

    Raises:
      ConfigError: the unfinished build is one with other settings.
    """
    mark = read_mark(folder)
    if mark is None:
        mark = BuildMark(settings_digest, settings)
    elif mark.settings_digest != settings_digest:
        if _has_finished_shard(folder):
            raise ConfigError(
                f"{folder} holds an unfinished build with other settings "
                f"({_list_differences(mark.settings, settings)}). Run it to its end with those, "
                "remove the folder, or give another --output"
            )
        mark = BuildMark(settings_digest, settings)
    files.clear_temporary(folder)
    files.remove_tree(os.path.join(folder, ACCOUNTS))
    write_mark(folder, replace(mark, in_order=False))
    return mark


def _list_differences(then: dict[str, str], now: dict[str, str]) -> str:
    names = [name for name in now if then.get(name) != now[name]]
    return "; ".join(f"{name} was {then.get(name, 'unknown')}, is {now[name]}" for name in names)


def drop_shard(folder: str, name: str) -> None:
    """Makes a shard unfinished, so that the next run builds it again."""
    files.remove_file(os.path.join(folder, index_name(name)))


def stop_build(folder: str, shard_names: Collection[str], mark: BuildMark) -> None:
    """Ends a run that does not commit, by its own decision: what is finished may be kept.

    The shards' bytes are made sure of first, since the next run will not read them again.
    """
    for name in shard_names:
        for path in (os.path.join(folder, name), os.path.join(folder, index_name(name))):
            if files.file_size(path) is not None:
                files.sync_file(path)
    mark.in_order = True
    write_mark(folder, mark)


def close_build(folder: str, shard_names: Collection[str], dataset: bytes) -> None:
    """Writes dataset.json, the commit mark, after all else; then clears what only a build needs.

    Shards that an earlier run of this build left under other numbers are removed before: they
    are ours, and a reader's glob would see them.
    """
    keep = {*shard_names, *map(index_name, shard_names)}
    for name in _list_ours(folder):
        if name not in keep:
            files.remove_file(os.path.join(folder, name))
    for name in sorted({*keep, REJECTS, RUN}):
        files.sync_file(os.path.join(folder, name))
    files.write_file(folder, DATASET, dataset)
    files.sync_file(os.path.join(folder, DATASET))
    files.sync_file(folder)
    clear_build(folder)


def clear_build(folder: str) -> None:
    """Removes what only an unfinished build needs."""
    files.remove_file(os.path.join(folder, MARK))
    files.remove_tree(os.path.join(folder, ACCOUNTS))
    files.clear_temporary(folder)
    files.remove_file(os.path.join(folder, LOCK))


def _list_ours(folder: str) -> list[str]:
    """Lists the shards and indexes that builds here have made, or begun: no other file is ours.

    A shard is known by its index, which carries our account of it, or by the note that it was
    being written. Other files may have such names, and folders below may be other data sets.
    """
    ours: list[str] = []
    for name in _list_folder(os.path.join(folder, INDEX_DIR)):
        shard_name = name.removesuffix(INDEX_SUFFIX).removesuffix(BUILDING_SUFFIX) + SUFFIX
        if name.endswith(BUILDING_SUFFIX) or _is_index_of(folder, name, shard_name):
            ours += [f"{INDEX_DIR}/{name}", shard_name]
    return ours


def _is_index_of(folder: str, name: str, shard_name: str) -> bool:
    try:
        info = read_info(os.path.join(folder, INDEX_DIR, name))
    except IndexFileError:
        return False
    return info is not None and info.name == shard_name


def _list_folder(folder: str) -> list[str]:
    with files.place_errors(folder, "listing"):
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def _check_ours(folder: str) -> None:
    """Refuses a folder that is neither empty nor one of our builds."""
    try:
        strangers = sorted(set(_list_folder(folder)) - {LOCK, files.TEMP_DIR})
    except PlaceError as error:
        if os.path.isdir(folder):
            raise
        raise ConfigError(f"{folder} is a file; a folder is meant as --output") from error
    if strangers and not {MARK, DATASET} & set(strangers):
        shown = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        raise ConfigError(
            f"{folder} is not empty and holds no build of pairshard ({shown}); nothing there "
            "is touched. Give a new or empty folder as --output"
        )


def _has_finished_shard(folder: str) -> bool:
    return any(name.startswith(INDEX_DIR) for name in _list_ours(folder))
