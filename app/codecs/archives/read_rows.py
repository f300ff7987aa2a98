"""Rows out of a tar or ZIP archive, or out of the files of a form: samples of WebDataset, or images.

A sample is the files that share a name.

The name of a file ends at the first dot behind its folders; what follows is the extension, in lower case. The
files of a sample stand side by side. Source: `group_by_keys` in webdataset/tariterators.py. In folders each
image is a row, and the name of its folder is its label, as torchvision's ImageFolder has it. The files of a
form are read as those of an archive; a label that is sent with them is used in place of the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Protocol

from ...domain.dtypes import BYTES, INT64, TEXT, DType
from ...domain.feature import Feature, default_encoding
from ...domain.limits import MIB
from ...domain.meaning import PLAIN, Meaning
from ...domain.schema import Schema, check_feature_names
from ...domain.tensor import Shape
from ...errors import MalformedInput, SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream, WholeBody
from ..columns import AbsentColumns, Batch, Column, Records
from ..csv.fields import require_nullable
from ..json.values import Reading
from ..options import ArchiveLayout, RecordsDecodeOptions
from ..records.lease import Lease
from ..schema_inference import HEAD_ROWS
from .files import (
    File,
    build_column,
    dtype_of,
    feature_name,
    infer_array,
    meaning_of,
    read_array,
    require_dense,
)
from .form_data import FormReader, malformed
from .tar import Member, TarReader
from .zip import ZipReader

#: The feature that holds the name of each sample.
KEY: Final = "__key__"
#: The features of images in folders.
IMAGE: Final = "image"
LABEL: Final = "label"
PATH: Final = "path"
#: What torchvision takes for images, and GIF.
_IMAGE_FILES: Final = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"),
    *(".tif", ".tiff", ".ppm", ".pgm"),
)
#: What macOS notes of each file: in a tar archive beside the file, in a ZIP archive in a folder.
_SYSTEM_FILE: Final = "._"
_SYSTEM_FOLDER: Final = "__MACOSX"
#: The first rows, from which a schema is inferred, end with the one in which their files reach so many bytes.
HEAD_BYTES: Final = 16 * MIB
#: A batch ends with the row in which its files reach so many bytes.
_BATCH_BYTES: Final = 4 * MIB
_BATCH_ROWS: Final = 1024
#: What a sample and a file take beside the content: objects of Python.
_SAMPLE_BYTES: Final = 1024
_FILE_BYTES: Final = 384
#: What a character of a name takes at most: as text, and in UTF-8.
_CHARACTER_BYTES: Final = 8


@dataclass(slots=True)
class Sample:
    """The files of one row, by their extensions.

    Attributes:
        num_bytes: what is charged for them.
    """

    row: int
    key: str
    files: dict[str, bytes] = field(default_factory=dict)
    num_bytes: int = 0


class Reader(Protocol):
    """Reads the files of an archive one by one."""

    def next(self) -> Member | None:
        """The next file, or None at the end."""

    def read(self, budget: Budget) -> bytes:
        """The content of that file, charged to the budget."""


def read_tar(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of a tar archive: samples, unless `options.archive` says otherwise; see `_read`."""
    return _read(TarReader(source, budget.limits), options, budget, options.archive or "samples")


def read_zip(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of a ZIP archive: images in folders, unless `options.archive` says otherwise; see `_read`."""
    return _read(ZipReader(body, budget), options, budget, options.archive or "folders")


def read_form(body: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the files of a form: images, unless `options.archive` says otherwise; see `_read`."""
    reader = FormReader(body, options.boundary, budget.limits)
    return _read(reader, options, budget, options.archive or "folders")


def _read(reader: Reader, options: RecordsDecodeOptions, budget: Budget, archive: ArchiveLayout) -> Records:
    """The rows of the archive, a batch at a time.

    Without a schema, samples have a feature for each extension in the first rows: 1,000 rows, or as many as
    have 16 MiB in their files; all rows, with `options.infer`.

    Raises:
        MalformedInput: no such archive, or a damaged one (`invalid_tar`, `invalid_zip`, `truncated`,
            `trailing_bytes`, `malformed_multipart`); labels for samples (`inapplicable_parameter`).
        UnprocessableInput: a file without an extension, or an image without a folder
            (`invalid_member_name`), one that stands twice (`duplicate_member`), a sample whose files stand
            apart (`split_sample`), links and devices (`unsupported_member`).
        SchemaConflict: files that do not fit the schema.
        LimitExceeded: a file or a name that is too large.
    """
    key = KEY if archive == "samples" else PATH
    if archive == "folders":
        samples = _images(reader, options.labels, _class_names(options.schema), budget)
    elif options.labels is None:
        samples = _group(reader, budget)
    else:
        raise MalformedInput(
            "labels= is for archives of images in folders. Leave it out, or set archive=folders.",
            code="inapplicable_parameter",
            extra={"parameter": "labels"},
        )
    if options.schema is None and archive == "folders":
        label = Feature(LABEL, TEXT if options.labels is None else INT64)
        head = list(_head(samples))
        image = Feature(IMAGE, BYTES, meaning=meaning_of(sample.files[IMAGE] for sample in head))
        schema = Schema((Feature(PATH, TEXT), image, label)).with_message(options.message)
        schema = _with_class_names(schema, options.labels)
        samples = chain(_drain(head), samples)
    elif options.schema is None:
        head = list(samples if options.infer == "all" else _head(samples))
        schema = _infer(head, budget).with_message(options.message)
        samples = chain(_drain(head), samples)
    else:
        schema = options.schema.with_message(options.message).as_read()
        require_dense(schema)
        schema = _with_class_names(schema, options.labels)
    return Records(schema, _Builder(schema, key, options, budget).build(samples))


def _with_class_names(schema: Schema, labels: tuple[str, ...] | None) -> Schema:
    """The schema, in which the numbers of the labels have these names.

    Raises:
        SchemaConflict: they have other names there, so that the numbers would mean something else, or they
            are text there.
    """
    label = schema.by_name.get(LABEL)
    if labels is None or label is None:
        return schema
    if label.dtype.is_string:
        raise SchemaConflict(
            f"Feature {LABEL!r} is {label.dtype} in the schema, and labels= makes numbers of labels. Leave "
            "it out, or declare an integer.",
            feature=LABEL,
        )
    if not label.dtype.is_integer:
        return schema
    meaning = Meaning(class_names=labels)
    if label.meaning not in (PLAIN, meaning):
        raise SchemaConflict(
            f"The labels are not the class_names that feature {LABEL!r} has in the schema, in their order. "
            "Give the same in both, or one of them.",
            feature=LABEL,
        )
    named = replace(label, meaning=meaning)
    return replace(schema, features=tuple(named if feature is label else feature for feature in schema))


def _class_names(schema: Schema | None) -> tuple[str, ...]:
    """The names that a declared schema has for the numbers of the labels."""
    label = None if schema is None else schema.by_name.get(LABEL)
    return () if label is None else label.meaning.class_names


def _images(
    reader: Reader, labels: tuple[str, ...] | None, class_names: tuple[str, ...], budget: Budget
) -> Iterator[Sample]:
    """Each image as a sample, whose key is its path.

    Args:
        labels: names of labels, whose places are their numbers; others are refused. None takes any label.
        class_names: the same for the names among them; others stay as they are, unless names are numbers:
            "1" would stand for the class "1" in one schema, and for the second class in another.
    """
    numbers = {label: str(number) for number, label in enumerate(labels or class_names)}
    takes_any = labels is None and not any(map(_is_number, class_names))
    row = 0
    while (member := reader.next()) is not None:
        *folders, base = member.name.split("/")
        if member.label is None and (base.startswith(".") or _SYSTEM_FOLDER in folders):
            continue
        if not base.lower().endswith(_IMAGE_FILES):
            raise _no_image(member, f"does not end in one of {', '.join(_IMAGE_FILES)}")
        label = member.label or (folders[-1] if folders else "")
        if member.label is None and label in ("", ".", ".."):
            raise _no_image(member, "stands in no folder, whose name would be its label")
        if not takes_any and label not in numbers:
            where = "labels= does" if labels is not None else "the class_names of the schema do"
            raise SchemaConflict(
                f"Row {row}, {member.name[:64]!r}, has the label {label[:64]!r}, which {where} not name. "
                "Name it there, or leave the image out.",
                row=row,
                feature=LABEL,
            )
        text = numbers.get(label, label).encode()
        held = _SAMPLE_BYTES + 2 * _FILE_BYTES + _CHARACTER_BYTES * len(member.name) + len(text)
        budget.charge(held, "A row of an archive")
        content = reader.read(budget)
        files = {IMAGE: content, LABEL: text}
        yield Sample(row, member.name, files, held + len(content))
        row += 1


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _no_image(member: Member, why: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"The file {member.name[:64]!r} {why}. Leave it out, or set archive=samples; in a form, a field "
        "'label' before it is its label.",
        code="invalid_member_name",
        offset=member.offset,
    )


def split_name(member: Member) -> tuple[str, str]:
    """The key of the sample, and the extension of the file."""
    folder, slash, base = member.name.rpartition("/")
    stem, dot, extension = base.partition(".")
    if not stem or not dot or not extension:
        raise UnprocessableInput(
            f"{member.name[:64]!r} is no name of a file of a sample, which is a key, a dot and an extension. "
            "Leave the file out (tar --exclude).",
            code="invalid_member_name",
            offset=member.offset,
        )
    return folder + slash + stem, extension.lower()


def _group(reader: Reader, budget: Budget) -> Iterator[Sample]:
    sample: Sample | None = None
    row = 0
    while (member := reader.next()) is not None:
        if member.name.rpartition("/")[2].startswith(_SYSTEM_FILE):
            continue
        if member.label is not None:
            raise malformed("labels are for images; a sample has its label in a file", member.offset)
        key, extension = split_name(member)
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample
                row += 1
            held = _SAMPLE_BYTES + _CHARACTER_BYTES * len(key)
            budget.charge(held, "A sample")
            sample = Sample(row, key, num_bytes=held)
        if extension in sample.files:
            raise _duplicate(sample, extension)
        budget.charge(_FILE_BYTES, "A file of a sample")
        content = sample.files[extension] = reader.read(budget)
        sample.num_bytes += _FILE_BYTES + len(content)
    if sample is not None:
        yield sample


def _duplicate(sample: Sample, extension: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Sample {sample.key[:64]!r} has two files for {extension[:64]!r}. Leave one of them out.",
        code="duplicate_member",
        row=sample.row,
        feature=extension,
    )


def _head(samples: Iterator[Sample]) -> Iterator[Sample]:
    """The first rows, from which a schema is inferred."""
    num_bytes = 0
    for sample in samples:
        yield sample
        num_bytes += sum(map(len, sample.files.values()))
        if sample.row == HEAD_ROWS - 1 or num_bytes >= HEAD_BYTES:
            return


def _drain(samples: list[Sample]) -> Iterator[Sample]:
    """The samples in order; each is removed from the list, so that none is kept."""
    samples.reverse()
    while samples:
        yield samples.pop()


def _infer(head: list[Sample], budget: Budget) -> Schema:
    names = dict.fromkeys(extension for sample in head for extension in sample.files)
    check_feature_names([KEY, *names], budget.limits)
    if not head:
        return Schema(())
    return Schema((Feature(KEY, TEXT), *(_infer_feature(name, head, budget) for name in names)))


def _infer_feature(name: str, head: list[Sample], budget: Budget) -> Feature:
    having = [sample for sample in head if name in sample.files]
    nullable = len(having) < len(head)
    dtype = dtype_of(name)
    if dtype is not None:
        meaning = meaning_of(sample.files[name] for sample in having) if dtype is BYTES else PLAIN
        return Feature(name, dtype, nullable=nullable, meaning=meaning)
    dtype, shape = infer_array(name, _shapes(name, having, budget))
    return Feature(name, dtype, shape, encoding=default_encoding(dtype, shape), nullable=nullable)


def _shapes(name: str, samples: list[Sample], budget: Budget) -> Iterator[tuple[int, DType, Shape]]:
    """Row, dtype and shape of the array that each sample has."""
    for sample in samples:
        with Lease(budget) as lease:
            before = budget.remaining
            array = read_array(sample.files[name], name, sample.row, budget)
            lease.adopt(before)
        yield sample.row, array.dtype, array.shape


class _Builder:
    """Makes batches of samples.

    Args:
        key: the feature that has the key of each sample, if the schema has it.
        options: whether the schema is declared, and what becomes of other files.
    """

    def __init__(self, schema: Schema, key: str, options: RecordsDecodeOptions, budget: Budget) -> None:
        self._schema = schema
        self._key = key
        self._reading = Reading(declared=options.schema is not None)
        self._drops_undeclared = options.undeclared == "drop"
        self._budget = budget
        #: The keys of samples that lack a feature: another sample of that key would be the rest of it.
        self._incomplete: set[str] = set()
        self._expected = len(schema) - (key in schema.by_name) if key == KEY else 0

    def build(self, samples: Iterable[Sample]) -> Iterator[Batch]:
        """The rows of all samples."""
        gathered: list[Sample] = []
        num_bytes = 0
        with Lease(self._budget) as columns, Lease(self._budget) as keys:
            for sample in samples:
                gathered.append(sample)
                num_bytes += sample.num_bytes
                if num_bytes >= _BATCH_BYTES or len(gathered) == _BATCH_ROWS:
                    yield self._batch(gathered, columns, keys)
                    gathered, num_bytes = self._release(num_bytes, columns)
            if gathered:
                yield self._batch(gathered, columns, keys)
                self._release(num_bytes, columns)

    def _release(self, num_bytes: int, columns: Lease) -> tuple[list[Sample], int]:
        columns.release()
        self._budget.release(num_bytes)
        return [], 0

    def _batch(self, samples: list[Sample], lease: Lease, keys: Lease) -> Batch:
        files: dict[str, dict[int, File]] = {}
        for sample in samples:
            if self._key in self._schema.by_name:
                files.setdefault(self._key, {})[sample.row] = File("", sample.key.encode())
            if self._assign(sample, files) < self._expected:
                self._note_incomplete(sample, keys)
        rows = range(samples[0].row, samples[0].row + len(samples))
        absent = AbsentColumns(len(samples))
        columns: list[Column] = []
        for feature in self._schema:
            if feature.name in files:
                columns.append(build_column(feature, files[feature.name], rows, self._reading, lease))
            else:
                require_nullable(feature, rows.start, self._reading)
                columns.append(absent.column(feature))
        return Batch(len(samples), tuple(columns))

    def _assign(self, sample: Sample, files: dict[str, dict[int, File]]) -> int:
        """Put each file where its feature is; how many there are."""
        found = 0
        for extension, content in sample.files.items():
            name = feature_name(extension, self._schema)
            if name is None or name == self._key:
                self._check_undeclared(sample, extension)
                continue
            given = files.setdefault(name, {})
            if sample.row in given:
                raise _duplicate(sample, extension)
            given[sample.row] = File(extension, content)
            found += 1
        return found

    def _check_undeclared(self, sample: Sample, extension: str) -> None:
        if self._reading.declared and self._drops_undeclared:
            return
        hint = "Declare the feature, leave the file out, or set undeclared=drop."
        if not self._reading.declared:
            hint = "None of the first rows has one: set infer=all, or declare a schema."
        raise SchemaConflict(
            f"Row {sample.row}, sample {sample.key[:64]!r}, has a file .{extension[:64]}, which the schema "
            f"lacks. {hint}",
            row=sample.row,
            feature=extension,
        )

    def _note_incomplete(self, sample: Sample, keys: Lease) -> None:
        if sample.key in self._incomplete:
            raise UnprocessableInput(
                f"The files of sample {sample.key[:64]!r} do not stand side by side, as WebDataset writes "
                "them. Sort the archive by name (tar --sort=name).",
                code="split_sample",
                row=sample.row,
            )
        keys.charge(_FILE_BYTES + len(sample.key), "The names of incomplete samples")
        self._incomplete.add(sample.key)
