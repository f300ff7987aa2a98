"""Which format an object of a source is taken for."""

import pytest

from app.services.datasets.imports.request import form_of


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", "csv"),
        ("logs/a.NDJSON.gz", "ndjson"),
        ("a.tfrecord-00001-of-00004", "tfrecord"),
        ("what?.parquet", "parquet"),
        ("https://host/a.parquet?signature=a/b.csv", "parquet"),
        ("https://host/?a.parquet", None),
        ("a.txt", None),
        ("csv", None),
    ],
)
def test_the_ending_of_a_name_tells_its_format(name: str, form: str | None) -> None:
    assert form_of(name) == form
