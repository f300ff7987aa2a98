"""Rows that may widen the schema of their dataset: which schema they and the stored rows have in common.

What is declared, beside the rows or in the body, may widen all that `domain/evolution.py` allows. Without
that the body is looked at first: features that the dataset lacks are inferred from it, and those that were
inferred before are widened; what somebody declared stays as it is. So a value that happens to be larger, or a
list that is longer, does not change what readers of the dataset rely on, unless that is said.
"""

from __future__ import annotations

from dataclasses import replace

from ....codecs.columns import Records
from ....codecs.forms import RECORDS_CODECS, FormName
from ....codecs.options import RecordsDecodeOptions
from ....domain.evolution import widen
from ....domain.feature import Feature
from ....domain.schema import Schema
from ....runtime.streams import ByteStream, RewindableStream
from ....runtime.workspace import Workspace
from ....transforms.parse import resulting_schema
from ...convert.records import decode_body, needs_file, open_body, open_records


def open_widening(
    source: ByteStream,
    form: FormName,
    options: RecordsDecodeOptions,
    stored: Schema,
    workspace: Workspace,
) -> Records:
    """As `open_records`; the schema of the rows is `stored`, as far as they leave it, or wider.

    Raises:
        SchemaConflict: no schema holds both.
    """
    if options.schema is not None:
        declared = replace(options, schema=_widen_declared(stored, options.schema))
        return open_records(source, form, declared, workspace)
    budget = workspace.budget
    stream = RewindableStream(source, budget)
    body = open_body(source, form, workspace) if needs_file(form) else stream
    first = replace(options, known=stored.as_received(), message=stored.message)
    found = decode_body(body, form, first, budget.anew())
    schema = _common(stored, found, form)
    stream.rewind()
    again = replace(options, schema=schema, schema_of_dataset=True, body_schema_seen=True)
    rows = decode_body(body, form, again, budget)
    rows.dropped.extend(name for name in found.dropped if name not in schema.by_name)
    return rows


def _common(stored: Schema, found: Records, form: FormName) -> Schema:
    if found.is_declared:
        return _widen_declared(stored, found.schema.as_stored())
    received = stored.as_received()
    offered = [_as_stored(feature, received, form) for feature in found.schema]
    return widen(received, Schema(tuple(offered), found.schema.message))


def _widen_declared(stored: Schema, declared: Schema) -> Schema:
    """The schema that declared rows are read by: that of the dataset, widened to take them."""
    widened = widen(stored, resulting_schema(declared)).with_declarations_of(declared)
    return widened.as_received(declared.names_without_transforms)


def _as_stored(feature: Feature, stored: Schema, form: FormName) -> Feature:
    """What the dataset has, where it has the feature; that some row lacks it is taken over.

    Where both were inferred, it is widened.
    """
    known = stored.by_name.get(feature.name)
    if known is None:
        return feature
    if known.inferred and feature.inferred:
        known = known.widen_to(feature.dtype, feature.shape)
    may_lack = feature.nullable and RECORDS_CODECS[form].shows_absence
    return replace(known, nullable=True) if may_lack else known
