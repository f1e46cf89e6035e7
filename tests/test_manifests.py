"""Manifests: every form, every kind of bad row, and what makes a file unusable."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from transforms.core import manifest_rows, manifests
from transforms.core.errors import ConfigError, PlaceError
from transforms.core.manifest_rows import ManifestOptions
from transforms.core.manifests import read_manifest
from transforms.core.rows import Reject, Row

PAIRS = Path(__file__).parents[2] / "shared" / "pairs"
OPTIONS = ManifestOptions("/data/set")
HEAD = b"image,mask\n"


def read(tmp_path: Path, name: str, data: bytes, **changes: object) -> list[Row | Reject]:
    """Writes and reads a manifest; the rows come without its name."""
    path = tmp_path / name
    path.write_bytes(data)
    options = replace(OPTIONS, **changes)  # type: ignore[arg-type]
    found = list(read_manifest(str(path), options))
    assert {row.manifest for row in found} <= {str(path)}
    return [replace(row, manifest="") for row in found]


def pair(image: str, mask: str, line: int, **fields: object) -> Row:
    return replace(Row(image, (image, mask), line=line), **fields)  # type: ignore[arg-type]


def bad(message: str, text: str, line: int) -> Reject:
    return Reject("", (), "", "bad_row", message, text=text, line=line)


AB = [pair("a.jpg", "a.png", 2), pair("b.jpg", "b.png", 3)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (HEAD + b"a.jpg,a.png\nb.jpg,b.png\n", AB),
        (HEAD + b"a.jpg,a.png\nb.jpg,b.png", AB),
        (HEAD + b"a.jpg,a.png\nb.jpg,b.png\n\n  \n\r\n", AB),
        (b"image,mask\r\na.jpg,a.png\r\nb.jpg,b.png\r\n", AB),
        (b'\xef\xbb\xbf"image","mask"\na.jpg,a.png\nb.jpg,b.png\n', AB),
        (b"mask,image\na.png,a.jpg\nb.png,b.jpg\n", AB),
        (b"\n" + HEAD + b"\na.jpg,a.png\n", [pair("a.jpg", "a.png", 4)]),
        (HEAD, []),
        (
            HEAD + b'"a, ""x"".jpg", a b .png\nb.jpg,b.png\n',
            [pair('a, "x".jpg', " a b .png", 2), pair("b.jpg", "b.png", 3)],
        ),
        (
            b'image,mask\r\n"a\r\nb.jpg","a\rb\n.png"\r\nc.jpg,c.png\r\n',
            [pair("a\r\nb.jpg", "a\rb\n.png", 2), pair("c.jpg", "c.png", 5)],
        ),
        (
            # Two spellings of é (composed, decomposed), U+00A0, U+2028: kept as they are.
            "image,mask\n\u00e9.jpg,e\u0301.png\na\u00a0b.jpg,a\u2028b.png\n".encode(),
            [pair("\u00e9.jpg", "e\u0301.png", 2), pair("a\u00a0b.jpg", "a\u2028b.png", 3)],
        ),
        (
            b"image,mask,key,split\na.jpg,a.png,k 1,train\nb.jpg,b.png,,\n",
            [pair("a.jpg", "a.png", 2, key="k 1", split="train"), AB[1]],
        ),
        (
            "z,image,mask,ä\n1,a.jpg,a.png,\nx y,b.jpg,b.png,ü\n".encode(),
            [
                pair("a.jpg", "a.png", 2, others='{"z":"1","ä":""}'),
                pair("b.jpg", "b.png", 3, others='{"z":"x y","ä":"ü"}'),
            ],
        ),
    ],
)
def test_reads_csv(tmp_path: Path, data: bytes, expected: list[Row]) -> None:
    assert read(tmp_path, "m.csv", data) == expected
    assert read(tmp_path, "M.CSV.GZ", gzip.compress(data)) == expected
    manifests.check_manifest(str(tmp_path / "m.csv"), OPTIONS)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"image":"a.jpg","mask":"a.png"}', [pair("a.jpg", "a.png", 1)]),
        (b'\xef\xbb\xbf{"mask":"a.png","image":"a.jpg"}\r\n\r\n', [pair("a.jpg", "a.png", 1)]),
        (
            b'\n{"image":"\\u00e9.jpg","mask":"a.png","key":17,"split":null}\n'
            b'{"image":"b.jpg","mask":"b.png","key":null,"split":"val"}\n',
            [
                pair("\u00e9.jpg", "a.png", 2, key="17"),
                pair("b.jpg", "b.png", 3, split="val"),
            ],
        ),
        (
            b'{"z":1.5,"image":"a.jpg","mask":"a.png","b":[1,{"y":true,"x":null}],"n":"\\u0000"}',
            [
                pair(
                    "a.jpg",
                    "a.png",
                    1,
                    others='{"b":[1,{"x":null,"y":true}],"n":"\\u0000","z":1.5}',
                )
            ],
        ),
    ],
)
def test_reads_json_lines(tmp_path: Path, data: bytes, expected: list[Row]) -> None:
    assert read(tmp_path, "m.jsonl", data) == expected
    assert read(tmp_path, "m.json.gz", gzip.compress(data)) == expected
    manifests.check_manifest(str(tmp_path / "m.jsonl"), OPTIONS)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"# image mask\na.jpg a.png\nb.jpg  \t b.png\n"[:25], [pair("a.jpg", "a.png", 2)]),
        (b"\xef\xbb\xbf a.jpg   a.png \r\n\r\nb.jpg b.png", [AB[0], AB[1]]),
        (b"a 1.jpg\ta 1.png\n", [pair("a 1.jpg", "a 1.png", 1)]),
        ("a\u3000b.jpg a\u00a0b.png\n".encode(), [pair("a\u3000b.jpg", "a\u00a0b.png", 1)]),
        (b"", []),
    ],
)
def test_reads_plain_lists(tmp_path: Path, data: bytes, expected: list[Row]) -> None:
    found = read(tmp_path, "m.txt", data)
    assert [replace(row, line=0) for row in found] == [replace(row, line=0) for row in expected]
    manifests.check_manifest(str(tmp_path / "m.txt"), OPTIONS)


def test_list_counts_physical_lines(tmp_path: Path) -> None:
    found = read(tmp_path, "m.lst", b"# x\n\na.jpg a.png\n#b\nb.jpg b.png\n")
    assert [row.line for row in found] == [3, 5]


UTF8 = "the line is not UTF-8 text; write the manifest as UTF-8"
NUL = "the line holds a NUL character, which no file's name can"
QUOTES = manifests._BAD_QUOTES
JSON = "the line is no JSON object; one object a line is expected"
FIELDS = (
    "the line has {} fields, expected 2 between blanks or tabs; names with blanks and further "
    "columns need a CSV with a header, VOC's lists of ids `pairshard manifest voc`"
)
KEY_SPLIT = "'key' and 'split' must be text (a key also a whole number), or null"
SPLIT = (
    "the split {!r} can't begin a shard's name: up to 64 of A-Z a-z 0-9 _ . - are expected, "
    "a letter or digit first, without '-NUMBER-of-'"
)
CELLS = (
    "the line has {} cells, expected 2 as the header has; put a cell that holds a comma in quotes"
)

BAD_CSV = [
    (b"x.jpg", CELLS.format(1), "x.jpg"),
    (b"x.jpg,x.png,", CELLS.format(3), "x.jpg,x.png,"),
    (b",x.png", "the column 'image' is empty", ",x.png"),
    (b'x.jpg,""\r', "the column 'mask' is empty", 'x.jpg,""'),
    (b"caf\xe9.jpg,x.png", UTF8, "caf\\xe9.jpg,x.png"),
    (b'"x\xff\n.jpg",x.png', UTF8, '"x\\xff\n.jpg",x.png'),
    (b"x\0.jpg,x.png", NUL, "x\\x00.jpg,x.png"),
    (b'"x\0\n.jpg",x.png', NUL, '"x\\x00\n.jpg",x.png'),
    (b'"x"y.jpg,x.png', QUOTES, '"x"y.jpg,x.png'),
    (b"x\r.jpg,x.png", QUOTES, "x\r.jpg,x.png"),
    (b'"x.jpg,x.png', QUOTES, '"x.jpg,x.png'),
    (b"x" * 140_000 + b",x.png", QUOTES, "x" * 1000),
    (b".,x.png", "the path '.' is the source root itself; expected a file below it", ".,x.png"),
]
BAD_JSON = [
    (b"[]", JSON, "[]"),
    (b"{", JSON, "{"),
    (b"image,mask", JSON, "image,mask"),
    (b'{"image":"x"} {}', JSON, '{"image":"x"} {}'),
    (b"[" * 100_000, JSON, "[" * 1000),
    (b'{"image":"x\xe9","mask":"y"}', UTF8, '{"image":"x\\xe9","mask":"y"}'),
    (b'{"image":"x"}', "the object has no 'mask'; it has: 'image'", '{"image":"x"}'),
    (b'{"image":1,"mask":"y"}', "'image' is not text; a path is expected", None),
    (b'{"image":"x","mask":null}', "'mask' is not text; a path is expected", None),
    (b'{"image":"x","mask":["y"]}', "'mask' is not text; a path is expected", None),
    (b'{"image":"x","mask":""}', "the column 'mask' is empty", None),
    (b'{"image":"x","mask":"y","image":"z"}', "the object has the name 'image' twice", None),
    (b'{"image":"x","mask":"y","n":{"a":1,"a":1}}', "the object has the name 'a' twice", None),
    (b'{"image":"x","mask":"y","n":NaN}', "NaN is no value of JSON; write null or text", None),
    (b'{"image":"x","mask":"y","n":1e999}', "a number is too large", None),
    (b'{"image":"x","mask":"y\\u0000"}', NUL, None),
    (b'{"image":"x","mask":"y","n":"\\ud800"}', UTF8, None),
    (b'{"image":"x","mask":"y","key":1.0}', KEY_SPLIT, None),
    (b'{"image":"x","mask":"y","key":true}', KEY_SPLIT, None),
    (b'{"image":"x","mask":"y","split":1}', KEY_SPLIT, None),
    (b'{"image":"x","mask":"y","key":"  "}', "the key is nothing but blanks", None),
    (b'{"image":"x","mask":"y","split":"a/b"}', SPLIT.format("a/b"), None),
]
BAD_LIST = [
    (b"x.jpg", FIELDS.format(1), "x.jpg"),
    (b"x.jpg x.png 1", FIELDS.format(3), "x.jpg x.png 1"),
    (b"x.jpg\tx.png\t", FIELDS.format(3), "x.jpg\tx.png\t"),
    (b"\tx.png", "the column 'image' is empty", "\tx.png"),
    (b"x\xe9.jpg x.png", UTF8, "x\\xe9.jpg x.png"),
    (b"x\0.jpg x.png", NUL, "x\\x00.jpg x.png"),
]


@pytest.mark.parametrize(
    ("name", "head", "a", "b", "line", "message", "text"),
    [("m.csv", HEAD, b"a.jpg,a.png\n", b"\nb.jpg,b.png\n", *case) for case in BAD_CSV]
    + [("m.lst", b"#\n", b"a.jpg a.png\n", b"\nb.jpg b.png\n", *case) for case in BAD_LIST]
    + [
        (
            "m.jsonl",
            b"\n",
            b'{"image":"a.jpg","mask":"a.png"}\n',
            b'\n{"image":"b.jpg","mask":"b.png"}\n',
            *case,
        )
        for case in BAD_JSON
    ],
)
def test_a_bad_row_costs_no_other(
    tmp_path: Path,
    name: str,
    head: bytes,
    a: bytes,
    b: bytes,
    line: bytes,
    message: str,
    text: str | None,
) -> None:
    expected = bad(message, line.decode() if text is None else text, 3)
    last = 4 + line.count(b"\n")
    assert read(tmp_path, name, head + a + line + b) == [
        AB[0],
        expected,
        replace(AB[1], line=last),
    ]
    assert read(tmp_path, name, head + a + line) == [AB[0], expected]


def test_an_unclosed_quote_costs_one_row_of_many(tmp_path: Path) -> None:
    lines = [f"i{n:05}.jpg,m{n:05}.png\n" for n in range(20_000)]
    lines[5] = '"i00005.jpg,m00005.png\n'
    lines[9_000] = 'i09000.jpg,"m09000.png\n'
    lines[-1] = 'i19999.jpg,"m19999.png'
    found = read(tmp_path, "m.csv", HEAD + "".join(lines).encode())
    assert [row.line for row in found] == list(range(2, 20_002))
    rejects = [row for row in found if isinstance(row, Reject)]
    assert rejects == [
        bad(QUOTES, '"i00005.jpg,m00005.png', 7),
        bad(QUOTES, 'i09000.jpg,"m09000.png', 9_002),
        bad(QUOTES, 'i19999.jpg,"m19999.png', 20_001),
    ]


def test_text_of_a_reject_is_cut(tmp_path: Path) -> None:
    (found,) = read(tmp_path, "m.csv", HEAD + b"\xff" * 600 + b"\n")
    assert isinstance(found, Reject)
    assert found.text == "\\xff" * 250


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a/b.jpg", "a/b.jpg"),
        ("./a//b/./c.jpg", "a/b/c.jpg"),
        ("a/../b.jpg", "b.jpg"),
        ("a/b.jpg/", "a/b.jpg"),
        ("/data/set/a/b.jpg", "a/b.jpg"),
        ("//data//set/a.jpg", "a.jpg"),
        ("../set/a.jpg", "a.jpg"),
        (".hidden/..a/.b", ".hidden/..a/.b"),
        ("a\\b.jpg", "a\\b.jpg"),
        ("C:\\a.jpg", "C:\\a.jpg"),
        ("#a b.jpg", "#a b.jpg"),
        ("~/a.jpg", "~/a.jpg"),
        ("/old/a.jpg", "new/a.jpg"),
        ("/old/old/a.jpg", "new/old/a.jpg"),
        ("/older/a.jpg", "first/a.jpg"),
    ],
)
def test_paths_become_relative(tmp_path: Path, given: str, expected: str) -> None:
    mend = (("/older/", "first/"), ("/old/", "/data/set/new/"))
    data = HEAD + f'"{given}",m.png\n'.encode()
    for root in ("/data/set", "/data/set/", "/data/./set"):
        found = read(tmp_path, "m.csv", data, replace_prefix=mend, source_root=root)
        assert found == [pair(expected, "m.png", 2)]


@pytest.mark.parametrize(
    ("given", "named", "allowed"),
    [
        ("../a.jpg", "../a.jpg", "/data/a.jpg"),
        ("x/../../b/./a.jpg", "../b/a.jpg", "/data/b/a.jpg"),
        ("/data/setting/a.jpg", "/data/setting/a.jpg", "/data/setting/a.jpg"),
        ("/a//b.jpg", "/a/b.jpg", "/a/b.jpg"),
        ("/data/set/../a.jpg", "/data/a.jpg", "/data/a.jpg"),
        ("gs://bucket//a.jpg", "gs://bucket/a.jpg", "gs://bucket/a.jpg"),
    ],
)
def test_paths_outside_root(tmp_path: Path, given: str, named: str, allowed: str) -> None:
    data = HEAD + f"{given},m.png\n".encode()
    message = (
        f"'{named}': outside the source root; expected a file below it: choose --source-root so "
        "that it holds all files, mend how paths begin with --replace-prefix OLD=NEW, or pass "
        "--allow-outside-root"
    )
    outside = pair(named, "m.png", 2, code="path_outside_root", message=message)
    assert read(tmp_path, "m.csv", data) == [outside]
    assert read(tmp_path, "m.csv", data, allow_outside_root=True) == [pair(allowed, "m.png", 2)]


def test_roots_in_buckets(tmp_path: Path) -> None:
    data = HEAD + b"gs://b/x/a.jpg,y/../a.png\ngs://b/a.jpg,../a.png\n"
    found = read(tmp_path, "m.csv", data, source_root="gs://b/x/")
    assert found[0] == pair("a.jpg", "a.png", 2)
    assert [(row.code, row.paths) for row in found[1:]] == [
        ("path_outside_root", ("gs://b/a.jpg", "../a.png"))
    ]
    assert read(tmp_path, "m.csv", HEAD + b"/a.jpg,a.png\n", source_root="/") == [
        pair("a.jpg", "a.png", 2)
    ]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("train", True),
        ("train-clean-100", True),
        ("0.v_2", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-a", False),
        (".a", False),
        ("a/b", False),
        ("a b", False),
        ("ä", False),
        ("train-00000-of-00008", False),
        ("train\n", False),
        ("a-of-b", True),
    ],
)
def test_split_names(text: str, good: bool) -> None:
    assert manifest_rows.is_split_name(text) is good


def test_groups(tmp_path: Path) -> None:
    data = b"image,mask,place,split\na,b,Rome,\nc,d,,val\ne,f, ,\n"
    assert read(tmp_path, "m.csv", data, split_by="place") == [
        pair("a", "b", 2, group="Rome", others='{"place":"Rome"}'),
        pair("c", "d", 3, split="val", others='{"place":""}'),
        bad("the column 'place' of --split-by is empty", "e,f, ,", 4),
    ]
    lines = [{"image": "a", "mask": "b", "place": place} for place in ("7", 7, True, None, [1])]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    found = read(tmp_path, "m.jsonl", data, split_by="place")
    assert [row.group if isinstance(row, Row) else row.message for row in found] == [
        "7",
        "7",
        "true",
        "the column 'place' of --split-by is empty",
        "'place' is a list or an object; a group's name is expected",
    ]


def test_other_path_columns(tmp_path: Path) -> None:
    found = read(tmp_path, "m.csv", b"label,image\n3,./a.jpg\n", path_columns=("image",))
    assert found == [Row("a.jpg", ("a.jpg",), others='{"label":"3"}', line=2)]
    assert read(tmp_path, "m.txt", b"a.jpg\n", path_columns=("image",)) == [
        Row("a.jpg", ("a.jpg",), line=1)
    ]


MISSING = (
    "the header has no column {}; it has: {}; expected 'image', 'mask', and at will 'key', "
    "'split' and further ones (in a CSV, the first line names them)"
)


@pytest.mark.parametrize(
    ("name", "data", "message", "changes"),
    [
        ("m.csv", b"", "is empty; a CSV begins with a line that names its columns", {}),
        ("m.csv", b"\n\n", "is empty; a CSV begins with a line that names its columns", {}),
        ("m.csv", b"image,label\n", MISSING.format("'mask'", "'image', 'label'"), {}),
        ("m.csv", b"image, mask\n", MISSING.format("'mask'", "'image', ' mask'"), {}),
        ("m.csv", b"image;mask\n", MISSING.format("'image'", "'image;mask'"), {}),
        (
            "m.csv",
            HEAD,
            MISSING.format("'city' of --split-by", "'image', 'mask'"),
            {"split_by": "city"},
        ),
        ("m.csv", b"image,mask,image\n", "the header has the column 'image' twice", {}),
        ("m.csv", b"image,mask,x,x\n", "the header has the column 'x' twice", {}),
        (
            "m.csv",
            b",image,mask\n",
            "column 1 of the header has no name; name it or leave it out "
            "(pandas: to_csv(index=False))",
            {},
        ),
        ("m.csv", b'"image,mask\na,b\n', "the header: " + QUOTES, {}),
        (
            "m.csv",
            "image,mask\n".encode("utf-16"),
            "the header is not UTF-8 text; write the file as UTF-8",
            {},
        ),
        ("m.csv", b"image,mask\ra,b\r", "its lines end in CR alone; write it with LF or CRLF", {}),
        ("m.txt", b"a b\rc d\r", "its lines end in CR alone; write it with LF or CRLF", {}),
        ("m.csv", gzip.compress(HEAD), "is compressed with gzip; let its name end in .gz", {}),
        ("m.csv.gz", HEAD, "is not gzip, or is damaged; write it again", {}),
        ("m.csv.gz", b"", "the .gz ends too early; write it again", {}),
        ("m.csv.gz", gzip.compress(HEAD)[:14], "the .gz ends too early; write it again", {}),
        (
            "m.txt",
            b"x" * (1 << 20),
            "its first line is longer than 1 MiB; is it a manifest?",
            {},
        ),
        (
            "m.tsv",
            b"a\tb\n",
            "the ending '.tsv' names no format of a manifest (known: .csv .jsonl .ndjson .json "
            ".txt .lst .list); say it with --manifest-format csv, jsonl or list",
            {},
        ),
        (
            "m.jsonl",
            b'\n[\n{"image":"a"},\n]',
            "none of its first lines is a JSON object with 'image', 'mask', one object a line "
            "(jq -c '.[]' makes that from an array); it begins with [",
            {},
        ),
        (
            "m.jsonl",
            b'{"img":"a"}\n',
            "none of its first lines is a JSON object with 'image', 'mask', one object a line "
            '(jq -c \'.[]\' makes that from an array); it begins with {"img":"a"}',
            {},
        ),
    ],
)
def test_unusable_manifests(
    tmp_path: Path, name: str, data: bytes, message: str, changes: dict[str, str]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        manifests.check_manifest(str(path), replace(OPTIONS, **changes))  # type: ignore[arg-type]
    assert str(caught.value) == f"{path}: {message}"


def test_format_by_option(tmp_path: Path) -> None:
    assert read(tmp_path, "m.tsv", b"a.jpg\ta.png\n", format="list") == [pair("a.jpg", "a.png", 1)]
    with pytest.raises(ConfigError, match="--manifest-format xml: expected auto, csv, jsonl, list"):
        read(tmp_path, "m.xml", b"", format="xml")


def test_split_by_of_a_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a plain list has no column 'city' of --split-by"):
        read(tmp_path, "m.txt", b"a b\n", split_by="city")


def test_one_bad_first_line_is_a_reject(tmp_path: Path) -> None:
    read(tmp_path, "m.jsonl", b'{"image":1}\n{"image":"a","mask":"b"}\n')
    manifests.check_manifest(str(tmp_path / "m.jsonl"), OPTIONS)


def test_a_cut_gz_is_no_shorter_manifest(tmp_path: Path) -> None:
    rng = random.Random(3)
    text = "".join(f"{rng.random()}.jpg,{rng.random()}.png\n" for _ in range(3000))
    path = tmp_path / "m.csv.gz"
    whole = gzip.compress(HEAD + text.encode())
    for end in (len(whole) // 2, len(whole) - 8, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(ConfigError, match=r"m\.csv\.gz: the \.gz ends too early"):
            list(read_manifest(str(path), OPTIONS))
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    with pytest.raises(ConfigError, match="is not gzip, or is damaged"):
        list(read_manifest(str(path), OPTIONS))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such manifest"):
        manifests.check_manifest(str(tmp_path / "m.csv"), OPTIONS)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(PlaceError, match=r"d\.csv: can't be read: Is a directory"):
        list(read_manifest(str(tmp_path / "d.csv"), OPTIONS))


def test_find_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x" / "y").mkdir(parents=True)
    for name in ("b.csv", "a.csv", "x/y/c.csv", "m[1].csv"):
        (tmp_path / name).write_bytes(HEAD)
    root = str(tmp_path)
    found = manifests.find_manifests(["*.csv", "./a.csv", "**/*.csv", f"{root}/x/y/c.csv"])
    assert found == [f"{root}/{name}" for name in ("a.csv", "b.csv", "m[1].csv", "x/y/c.csv")]
    assert manifests.find_manifests(["m[1].csv"]) == [f"{root}/m[1].csv"]
    for patterns, message in (
        ([], "no manifest was given"),
        (["*.txt"], r"\*\.txt: no such manifest; give a file or a glob that finds files"),
        (["x"], r"x: is a folder; name its manifests, as in 'x/\*\.csv'"),
        (["/dev/null"], "/dev/null: is not an ordinary file"),
    ):
        with pytest.raises(ConfigError, match=message):
            manifests.find_manifests(patterns)


def test_find_source_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    root = str(tmp_path)
    assert manifests.find_source_root([f"{root}/a.csv", f"{root}/b.csv"], None) == root
    assert manifests.find_source_root([f"{root}/a.csv", "/b.csv"], "x/../x/") == f"{root}/x"
    with pytest.raises(ConfigError, match=r"the manifests lie in 2 folders .* --source-root"):
        manifests.find_source_root([f"{root}/a.csv", f"{root}/x/a.csv"], None)
    with pytest.raises(ConfigError, match="--source-root y: there is no such folder"):
        manifests.find_source_root([f"{root}/a.csv"], "y")


def test_format_manifest() -> None:
    rows = [("a.jpg", "b c.png"), ('a"b', "a,b"), ("a\rb", "a\nb"), (" a", ""), ("é", "'")]
    assert "".join(manifests.format_manifest(rows, ("image", "mask"))) == (
        'image,mask\na.jpg,b c.png\n"a""b","a,b"\n"a\rb","a\nb"\n" a",\né,\'\n'
    )
    assert list(manifests.format_manifest([("",), (" ",)], ("x",))) == ["x\n", '""\n', '" "\n']


def random_text(rng: random.Random) -> str:
    parts = ["a", "B", " ", ",", '"', "'", "\n", "\r", "\r\n", "\t", "é", "e\u0301", "\u00a0"]
    parts += ["日本", "😀", "\u2028", "\ufeff", "\x85", "\\", "#", ";", "\x1c", "%"]
    return "x" + "".join(rng.choices(parts, k=rng.randrange(12)))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_is_read(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    columns = ["image", "mask", "key", "weather", "Ort"]
    cells = [[random_text(rng) for _ in columns] for _ in range(300)]
    lines = list(manifests.format_manifest(cells, columns))
    numbers = [2]
    for line in lines[1:]:
        numbers.append(numbers[-1] + line.count("\n"))
    expected = [
        pair(
            image,
            mask,
            number,
            key=key,
            others=json.dumps(
                {"Ort": place, "weather": weather}, ensure_ascii=False, separators=(",", ":")
            ),
        )
        for number, (image, mask, key, weather, place) in zip(numbers, cells, strict=False)
    ]
    text = "".join(lines)
    crlf = "".join(line[:-1] + "\r\n" for line in lines)
    for bom in (b"", b"\xef\xbb\xbf"):
        assert read(tmp_path, "m.csv", bom + text.encode()) == expected
        assert read(tmp_path, "m.csv", bom + crlf.encode()) == expected
        assert read(tmp_path, "m.csv", bom + text[:-1].encode()) == expected
        assert read(tmp_path, "m.csv.gz", gzip.compress(bom + text.encode())) == expected
    flat = [replace(row, line=line) for line, row in enumerate(expected, 1)]
    for ascii_only in (True, False):
        objects = [
            json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=ascii_only)
            for row in cells
        ]
        for end in ("\n", "\r\n"):
            assert read(tmp_path, "m.ndjson", end.join(objects).encode()) == flat


@pytest.mark.parametrize("seed", range(40))
def test_damage_loses_no_line(tmp_path: Path, seed: int) -> None:
    """Whatever bytes are broken, each line without them is read as before."""
    rng = random.Random(seed)
    lines = [f"i{n}.jpg,m{n}.png".encode() for n in range(200)]
    hit = set(rng.sample(range(200), 5))
    for n in hit:
        line = bytearray(lines[n])
        line[rng.randrange(len(line))] = rng.choice(b'\x00\xff\xc3"\r\x80,')
        lines[n] = bytes(line)
    found = read(tmp_path, "m.csv", HEAD + b"\n".join(lines) + b"\n")
    assert [row.line for row in found] == list(range(2, 202))
    for n in set(range(200)) - hit:
        assert found[n] == pair(f"i{n}.jpg", f"m{n}.png", n + 2)


def test_memory_stays_flat(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(HEAD + b'"x.jpg,x.png\n' + b"a/b/c.jpg,a/b/c.png\n" * 100_000)
    tracemalloc.start()
    count = sum(1 for _ in read_manifest(str(path), OPTIONS))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_001
    assert peak < 4 << 20


def test_real_list_with_a_foreign_prefix() -> None:
    path = PAIRS / "camvid" / "train.txt"
    if not path.is_file():
        pytest.skip(f"the real pairs are not here: {path}")
    root = str(path.parent)
    options = ManifestOptions(root, replace_prefix=(("/SegNet/CamVid/", ""),))
    manifests.check_manifest(str(path), options)
    rows = list(read_manifest(str(path), options))
    assert len(rows) == 24
    assert rows[0] == Row(
        "train/0001TP_006750.png",
        ("train/0001TP_006750.png", "trainannot/0001TP_006750.png"),
        manifest=str(path),
        line=1,
    )
    assert all((path.parent / name).is_file() for row in rows for name in row.paths)
    unmended = read_manifest(str(path), ManifestOptions(root))
    assert {row.code for row in unmended} == {"path_outside_root"}
