"""Small accounts (of shards, manifests, checks) to one file that the driver reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import apache_beam as beam

from transforms.core import files


class WriteAccount(beam.PTransform):
    """Writes all elements into one file, pickled as a list; for elements of a kilobyte or so.

    A pipeline's results reach the driver in no other way on every runner.

    Args:
      folder: where the file is written.
      name: of the file.
    """

    def __init__(self, folder: str, name: str) -> None:
        super().__init__()
        self._folder = folder
        self._name = name

    def expand(self, accounts: beam.PCollection) -> beam.PCollection:
        return (
            accounts
            | "Pack" >> beam.Map(_pack)
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write, self._folder, self._name)
        )


def read_account(folder: str, name: str) -> list[object]:
    """Reads what `WriteAccount` wrote; [] where there was no element at all."""
    data = files.read_file(f"{folder}/{name}")
    return [] if data is None else [pickle.loads(item) for item in pickle.loads(data)]


def _pack(account: object) -> tuple[int, bytes]:
    return 0, pickle.dumps(account, protocol=5)


def _write(gathered: tuple[int, Iterable[bytes]], folder: str, name: str) -> None:
    files.write_file(folder, name, pickle.dumps(sorted(gathered[1]), protocol=5))
