"""The errors that have a meaning for the user; any other exception is a bug.

`DataError` is the only one that a row may raise; it becomes a reject. The others end
the run, each with an exit status of its own (see `launch.status`).
"""

from __future__ import annotations

REJECT_CODES: dict[str, str] = {
    "bad_row": "The manifest's line is not a row: wrong columns, or text that is not UTF-8.",
    "duplicate_key": "Another row has the same key; the lowest row was kept.",
    "path_outside_root": "The path leaves the source root.",
    "missing_file": "There is no such file.",
    "not_readable": "The file is there but can't be read: permissions, or it is a folder.",
    "empty_file": "The file has no bytes.",
    "not_an_image": "The bytes are no picture of a format that is opened.",
    "truncated": "The picture's data ends too early.",
    "corrupt": "The picture's data is damaged: a checksum or the compressed stream is wrong.",
    "unsupported_mode": "The pixel format has no faithful conversion (16 bits, float, LAB, …).",
    "unsupported_format": "The encoded payload keeps the source's bytes: JPEG and PNG only.",
    "too_many_pixels": "The picture is larger than --max-pixels.",
    "multi_frame": "The file holds more than one frame.",
    "size_mismatch": "Image and mask differ in height or width.",
    "mask_not_indexed": "The mask holds colours, not class ids.",
    "lossy_mask": "The mask is stored in a lossy format: its ids are noise.",
    "class_id_out_of_range": "The mask holds an id that is neither a class nor the ignore id.",
}
"""Every code that a reject can have, with its meaning; docs/reject-codes.md says what to do."""


class DataError(Exception):
    """A row that can't become a record.

    Args:
      code: one of `REJECT_CODES`.
      message: what was found, what was expected and what to do. It names no manifest and
        no line (those depend on where the row stood) and no absolute path.
      path: the file that is at fault, as the index names it; '' where it is no file.
    """

    def __init__(self, code: str, message: str, *, path: str = "") -> None:
        super().__init__(code, message, path)
        self.code = code
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _data_error, (self.code, self.message, self.path)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def _data_error(code: str, message: str, path: str) -> DataError:
    return DataError(code, message, path=path)


class ConfigError(Exception):
    """Wrong use: an option, a manifest's header, a directory that is refused. Exit status 2."""


class PlaceError(Exception):
    """The environment failed (disk, permission, network, cluster). Exit status 5.

    Nothing was published, and trying again is safe.
    """


class HeldError(Exception):
    """Another run holds the place. Exit status 6."""
