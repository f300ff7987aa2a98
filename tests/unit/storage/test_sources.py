"""Sources of imports: what they list, and what lies at a URL that is allowed."""

import errno
import os
from pathlib import Path

import pytest

from app.errors import InputError, MalformedInput, SourceUnavailable
from app.storage.sources import is_allowed, open_source


@pytest.mark.parametrize(
    ("url", "is_inside"),
    [
        ("s3://b/data", True),
        ("s3://b//data/x", True),
        ("s3://b/data/*.csv", True),
        ("s3://b/data/part-?.csv", True),
        ("s3://b/data/a%20b", True),
        ("s3://b/data*", False),
        ("s3://b/data?private/*", False),
        ("s3://b/data#private/x", False),
        ("s3://b/da\nta/x", False),
        ("s3://b/data/../x", False),
        ("s3://b/data/%2e%2E/x", False),
        ("s3://b/data/%252e%252e/x", False),
        ("s3://B/data", False),
        ("S3://b/data", False),
        ("s3://b", False),
        ("gs://b/data", False),
        ("file:///srv/in", True),
        ("file:///srv/in?private/*", False),
        ("file:///srv/in/x%00", False),
        ("file://host/srv/in", False),
        ("https://h/d", True),
        ("https://h/d?signature=x/../y", True),
        ("https://h/d#x", True),
        ("https://H/d", False),
        ("https://h./d", False),
        ("https://h:443/d", False),
        ("https://u:p@h/d", False),
        ("https://h@evil/d", False),
        ("https://evil#@h/d", False),
        ("https://evil?@h/d", False),
        ("https://h\\@evil/d", False),
        ("http://h/d", False),
        ("https://h/d/%2e%2e/e", False),
    ],
)
def test_a_source_is_allowed_where_it_lies_at_or_below_a_url(url: str, is_inside: bool) -> None:
    assert is_allowed(url, ["s3://b/data", "file:///srv/in", "https://h/d"]) is is_inside


@pytest.mark.parametrize(
    "url",
    [
        "http://[x",
        "https://h:99999/x",
        "https://h:x/x",
        "ftp://h/x",
        "https://",
        "s3://",
        "x",
        "https://u:p4ss@h/x.csv",
        f"file:///{'x' * 300}",
    ],
)
def test_malformed_source_is_refused(url: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        open_source(url)
    assert caught.value.code == "invalid_source"
    assert "p4ss" not in caught.value.detail


def _names(url: str) -> list[str]:
    return sorted(item.name for item in open_source(url).list())


def test_a_pattern_may_begin_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    first, rest = tmp_path.parts[1], "/".join(tmp_path.parts[2:])
    assert open_source(f"file:///[{first[0]}]{first[1:]}/{rest}/a.csv").folder == ""
    source = open_source(f"file:///{first}/{rest}/*.csv")
    assert [item.name for item in source.list()] == ["a.csv"]


def test_existing_path_is_not_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "in[1]?"
    folder.mkdir()
    (folder / "a b#%20.csv").touch()
    assert _names(folder.as_uri()) == ["a b#%20.csv"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_that_leads_out_is_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").touch()
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "b.csv").touch()
    (inside / "link").symlink_to(outside if kind == "folder" else outside / "a.csv")
    with pytest.raises(InputError, match="'link'") as caught:
        _names(inside.as_uri())
    assert caught.value.code == "source_link"
    assert _names(f"{inside.as_uri()}/*.csv") == ["b.csv"]


def test_link_within_a_folder_is_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/x.csv").touch()
    (tmp_path / "a/same.csv").symlink_to("x.csv")
    (tmp_path / "b/other.csv").symlink_to(tmp_path / "a/x.csv")
    assert _names((tmp_path / "a/same.csv").as_uri()) == ["same.csv"]
    with pytest.raises(InputError, match=r"'other\.csv'") as caught:
        _names((tmp_path / "b/other.csv").as_uri())
    assert caught.value.code == "source_link"


def test_a_link_is_allowed_where_it_leads(tmp_path: Path) -> None:
    for name in ("in/own", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in/link").symlink_to(tmp_path / "in/own")
    (tmp_path / "in/out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "entry").symlink_to(tmp_path / "in")
    url = tmp_path.as_uri()
    for allowed in ("in", "entry"):
        found = {
            name: is_allowed(f"{url}/{name}", [f"{url}/{allowed}"])
            for name in ("in", "entry/own", "in/link/*.csv", "in/out", "in/out/*.csv", "elsewhere")
        }
        assert [name for name, inside in found.items() if inside] == ["in", "entry/own", "in/link/*.csv"]


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    # Deeper than a path can name, so that nobody can list it, whatever their rights.
    descriptors = [os.open(tmp_path, os.O_RDONLY)]
    try:
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=descriptors[-1])
            descriptors.append(os.open("d" * 250, os.O_RDONLY, dir_fd=descriptors[-1]))
        with pytest.raises(SourceUnavailable):
            _names(tmp_path.as_uri())
    finally:
        for descriptor in reversed(descriptors[:-1]):
            os.rmdir("d" * 250, dir_fd=descriptor)
        for descriptor in descriptors:
            os.close(descriptor)


def _replace(path: Path, kind: str, other: Path) -> None:
    """Put something else at a path: a link to `other`, a link to nothing, a FIFO, or a folder."""
    path.rename(path.with_name("moved"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other if kind == "link" else "nothing")


@pytest.mark.parametrize("part", ["in/deep/a.csv", "in/deep", "in"])
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_a_name_that_leads_elsewhere_once_it_was_checked_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, kind: str
) -> None:
    """Who can write into the folder copies size and time of a file outside, and is faster than we are."""
    for name in ("in/deep", "out/deep"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.csv").write_text("x\n1\n")
        os.utime(tmp_path / name / "a.csv", (1, 1))
    allowed = [(tmp_path / "in").as_uri()]
    source = open_source(allowed[0], allowed)
    [item] = source.list()
    resolve = os.path.realpath

    def resolve_too_early(path: str, **options: bool) -> str:
        resolved = resolve(path, **options)
        if resolved.endswith("a.csv"):
            monkeypatch.undo()
            _replace(tmp_path / part, kind, tmp_path / part.replace("in", "out", 1))
        return resolved

    monkeypatch.setattr(os.path, "realpath", resolve_too_early)
    with pytest.raises(InputError) as caught:
        source.read(item, 0, item.size)
    assert caught.value.code == "source_changed"


@pytest.mark.parametrize("place", ["folder", "link"])
def test_nothing_outside_is_listed_by_a_name_that_leads_there_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("in/deep", "out"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{name[:2]}.csv").touch()
    (tmp_path / "in/link").symlink_to("deep/in.csv")
    allowed = [(tmp_path / "in").as_uri()]
    changed, leads_to = {"folder": ("in/deep", "out"), "link": ("in/deep/in.csv", "out/ou.csv")}[place]
    resolve, last = os.path.realpath, str(tmp_path / changed)

    def resolve_too_early(path: str, **options: bool) -> str:
        resolved = resolve(path, **options)
        if resolved == last:
            monkeypatch.undo()
            _replace(tmp_path / changed, "link", tmp_path / leads_to)
        return resolved

    monkeypatch.setattr(os.path, "realpath", resolve_too_early)
    with pytest.raises((InputError, SourceUnavailable)) as caught:
        list(open_source(allowed[0], allowed).list())
    assert "ou.csv" not in caught.value.detail


def test_a_link_that_is_replaced_while_it_is_resolved_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, **_: bool) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    (tmp_path / "a.csv").touch()
    source = open_source(tmp_path.as_uri(), [tmp_path.as_uri()])
    [item] = source.list()
    monkeypatch.setattr(os.path, "realpath", fail)
    assert not is_allowed(tmp_path.as_uri(), [tmp_path.as_uri()])
    with pytest.raises(SourceUnavailable):
        list(source.list())
    with pytest.raises(InputError) as caught:
        source.read(item, 0, 1)
    assert caught.value.code == "source_changed"
