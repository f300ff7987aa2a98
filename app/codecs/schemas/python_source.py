"""A schema as Python source: the feature description that TensorFlow parses rows by, and a loader.

Source: `tf.io.parse_single_example` and `tf.io.parse_single_sequence_example` of TensorFlow 2.21.

| feature                          | described as            | what the loader gives for a row           |
|----------------------------------|-------------------------|-------------------------------------------|
| of known shape                   | FixedLenFeature         | a tensor of that shape                    |
| of known shape, may be absent    | VarLenFeature           | one axis more, of 0 (absent) or 1         |
| `list` of shape [null, dims]     | FixedLenSequenceFeature | a tensor; absent: empty                   |
| `list` with any other unknown    | VarLenFeature           | a tensor; absent: empty                   |
| `raw`, `tensor`                  | as scalar strings       | decoded, as above                         |
| ... of a dtype without a kernel  | as scalar strings       | the strings, not decoded                  |
| ragged                           | RaggedFeature           | a RaggedTensor                            |
| sparse                           | SparseFeature           | a SparseTensor                            |
| ... in a SequenceExample, where  | VarLenFeatures of its   | a SparseTensor                            |
| TensorFlow takes none            | components              |                                           |
| sequence of steps of known shape | FixedLenSequenceFeature | a tensor of all steps                     |
| sequence of any other steps      | RaggedFeature           | a RaggedTensor of all steps               |

Where values mean something else (`domain/meaning.py`), `prepare` makes that of them: images are decoded, what
was quantized is numbers again. Names of classes stand in `class_names`.

Names go in as Python literals, so that no name can be code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ...domain.dtypes import DType
from ...domain.feature import Feature, FeatureShape, stored_features
from ...domain.schema import Schema, message_keys

#: dtypes that `tf.io.decode_raw` does not take, each with one of the same bits that it does take.
_DECODED_AS: Final = {"uint32": "int32", "uint64": "int64"}
_PREPARE: Final = '''
def prepare(row, image_size=None):
    """The row with images as float32 from 0 to 1, of one size if it is given, and no number quantized."""
'''
_HEAD: Final = '''\
"""Reads {rows} from TFRecord files into tf.data. Made from a schema; needs TensorFlow alone."""

import tensorflow as tf
'''
_LOAD_PREPARED: Final = '''\
def load(pattern, batch_size=None, compression_type="", image_size=None):
    """The rows of all files that match, in the order of their names; in batches, if a size is given."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    rows = tf.data.TFRecordDataset(files, compression_type)
    rows = rows.map(lambda row: prepare(parse(row), image_size), num_parallel_calls=tf.data.AUTOTUNE)
    return rows if batch_size is None else rows.ragged_batch(batch_size)
'''
_LOAD: Final = '''\
def load(pattern, batch_size=None, compression_type=""):
    """The rows of all files that match, in the order of their names; in batches, if a size is given."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    rows = tf.data.TFRecordDataset(files, compression_type)
    rows = rows.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return rows if batch_size is None else rows.ragged_batch(batch_size)
'''


def serialize_python(schema: Schema) -> bytes:
    """Python source that parses the rows which are written with this schema. Equal schemas, equal bytes."""
    is_sequence = schema.message == "sequence_example"
    context = [feature for feature in schema if feature.kind != "sequence"]
    steps = [feature for feature in schema if feature.kind == "sequence"]
    parts = [_HEAD.format(rows="tf.train.SequenceExamples" if is_sequence else "tf.train.Examples")]
    if is_sequence:
        parts.append(_description("context_features", _context_specs(context)))
        keys = message_keys(schema)
        specs = ((replace(step, name=keys[step.name]), _step_spec(step)) for step in steps)
        parts.append(_description("sequence_features", specs))
        renamed = "".join(
            f"    steps[{name!r}] = steps.pop({key!r})\n" for name, key in keys.items() if name != key
        )
        call = (
            "    row, steps = tf.io.parse_single_sequence_example(\n"
            "        serialized, context_features=context_features, sequence_features=sequence_features\n"
            f"    )[:2]\n{renamed}"
            "    row = {**row, **steps}\n"
        )
    else:
        described = ((feature, _spec(feature)) for feature in context)
        parts.append(_description("feature_description", described))
        call = "    row = tf.io.parse_single_example(serialized, feature_description)\n"
    parse = f'\ndef parse(serialized):\n    """One row, by the names of its features."""\n{call}'
    for feature in schema:
        parsed = f"row[{_name(feature)}]"
        if not _is_decodable(feature):
            parse += (
                f"    # {parsed} is {feature.dtype}, of which TensorFlow has no kernels: the bytes as stored "
                f"({feature.encoding}).\n"
            )
            value = f"{parsed}.values" if feature.nullable and feature.kind == "dense" else parsed
        elif feature.kind == "sequence":
            value = _step_value(feature, parsed)
        elif is_sequence and feature.kind == "sparse":
            value = _cast(feature.dtype, _sparse_of_components(feature))
        else:
            value = _value(feature, parsed)
        if value != parsed:
            parse += f"    {parsed} = {value}\n"
    parts.append(parse + "    return row\n")
    if names := "".join(_class_names(feature) for feature in schema):
        parts.append(f"\nclass_names = {{\n{names}}}\n")
    prepared = "".join(_prepared(feature) for feature in schema)
    parts += [_PREPARE + prepared + "    return row\n"] if prepared else []
    parts.append("\n" + (_LOAD_PREPARED if prepared else _LOAD))
    return "\n".join(parts).encode()


def _class_names(feature: Feature) -> str:
    names = feature.meaning.class_names
    return f"    {_name(feature)}: {list(names)!r},\n" if names else ""


def _prepared(feature: Feature) -> str:
    """The lines that make of parsed values what they mean; none where that is what they are."""
    row, meaning = f"row[{_name(feature)}]", feature.meaning
    if feature.nullable or feature.kind != "dense":
        return ""
    if meaning.quantized is not None:
        scale, zero_point = meaning.quantized.scale, meaning.quantized.zero_point
        numbers = f"tf.cast({row}, tf.float32) - {_constant(map(float, zero_point))}"
        return f"    {row} = ({numbers}) * {_constant(scale)}\n"
    if meaning.image is None:
        return ""
    channels = meaning.image.shape[2] or 0
    decode = {"jpeg": "decode_jpeg({})", "png": "decode_png({})"}.get(
        meaning.image.format or "", "decode_image({}, expand_animations=False)"
    )
    arguments = f"{row}, channels={channels}"
    return (
        f"    image = tf.io.{decode.format(arguments)}\n"
        f"    image = tf.ensure_shape(image, {list(meaning.image.shape)})\n"
        "    if image_size is not None:\n"
        "        image = tf.image.resize(image, image_size)\n"
        f"    {row} = tf.cast(image, tf.float32) / 255.0\n"
    )


def _constant(numbers: Iterable[float]) -> str:
    """One number, or one for each place of the last axis."""
    found = list(numbers)
    return repr(found[0]) if len(found) == 1 else repr(found)


def _description(variable: str, specs: Iterable[tuple[Feature, str]]) -> str:
    lines = "".join(f"    {_name(feature)}: {spec},\n" for feature, spec in specs)
    return f"{variable} = {{\n{lines}}}\n"


def _context_specs(features: Iterable[Feature]) -> Iterator[tuple[Feature, str]]:
    """The specs of a SequenceExample's context, where TensorFlow takes no SparseFeature."""
    for feature in features:
        if feature.kind == "sparse":
            for component in stored_features(feature):
                yield component, f"tf.io.VarLenFeature({_stored_dtype(component)})"
        else:
            yield feature, _spec(feature)


def _sparse_of_components(feature: Feature) -> str:
    *indices, values = (f"row.pop({_name(component)}).values" for component in stored_features(feature))
    return (
        f"tf.SparseTensor(\n        tf.stack([{', '.join(indices)}], axis=1),\n        {values},\n"
        f"        {list(feature.shape)},\n    )"
    )


def _spec(feature: Feature) -> str:
    """The spec of a feature of an Example, or of the context, for `tf.io.parse_example`."""
    stored = _stored_dtype(feature)
    if feature.kind == "ragged":
        values, *cuts = stored_features(feature)
        partitions = [f"tf.io.RaggedFeature.RowLengths({cut.name!r})" for cut in cuts]
        partitions += [f"tf.io.RaggedFeature.UniformRowLength({dim})" for dim in feature.inner_shape]
        listed = "".join(f"            {partition},\n" for partition in partitions)
        return (
            f"tf.io.RaggedFeature(\n        {stored},\n        value_key={values.name!r},\n"
            f"        partitions=[\n{listed}        ],\n        row_splits_dtype=tf.int64,\n    )"
        )
    if feature.kind == "sparse":
        *indices, values = stored_features(feature)
        keys = [index.name for index in indices]
        return (
            f"tf.io.SparseFeature(\n        index_key={keys!r},\n        value_key={values.name!r},\n"
            f"        dtype={stored},\n        size={list(feature.shape)},\n    )"
        )
    if feature.encoding != "list":
        return (
            f"tf.io.VarLenFeature({stored})" if feature.nullable else f"tf.io.FixedLenFeature([], {stored})"
        )
    if _is_fixed_len_sequence(feature):
        return f"tf.io.FixedLenSequenceFeature({_dims(feature.shape[1:])}, {stored}, allow_missing=True)"
    if feature.num_unknown or feature.nullable:
        return f"tf.io.VarLenFeature({stored})"
    return f"tf.io.FixedLenFeature({_dims(feature.shape)}, {stored})"


def _value(feature: Feature, parsed: str) -> str:
    """The value of a feature, from what TensorFlow parsed."""
    if feature.encoding != "list":
        return _decode_row(feature, parsed)
    shape = feature.shape
    if (
        feature.kind == "dense"
        and not _is_fixed_len_sequence(feature)
        and (feature.num_unknown or feature.nullable)
    ):
        # A feature without elements looks the same whether it is there or not.
        absent_axis = not feature.num_unknown and feature.known_values > 0
        parsed = _reshape(f"{parsed}.values", (None, *shape) if absent_axis else shape)
    return _cast(feature.dtype, parsed)


def _decode_row(feature: Feature, parsed: str) -> str:
    if not feature.nullable:
        return _decode(feature, parsed)
    # Nothing is decoded where there is nothing; the branches have to agree in rank and dtype.
    empty = [0, *(dim or 0 for dim in feature.shape)]
    return (
        f"tf.cond(\n        tf.size({parsed}.values) > 0,\n"
        f"        lambda: tf.expand_dims({_decode(feature, f'{parsed}.values[0]')}, 0),\n"
        f"        lambda: tf.zeros({empty}, {_tf(feature.dtype)}),\n    )"
    )


def _decode(feature: Feature, string: str) -> str:
    """The array behind one encoded string."""
    dtype = _tf(feature.dtype)
    if feature.encoding == "tensor":
        return f"tf.ensure_shape(tf.io.parse_tensor({string}, {dtype}), {_dims(feature.shape)})"
    return _reshape(_raw(feature.dtype, string), feature.shape)


def _is_decodable(feature: Feature) -> bool:
    return feature.encoding == "list" or feature.dtype.has_kernel


def _raw(dtype: DType, strings: str) -> str:
    same_bits = _DECODED_AS.get(dtype.name)
    if same_bits is not None:
        return f"tf.bitcast(tf.io.decode_raw({strings}, tf.{same_bits}), {_tf(dtype)})"
    return f"tf.io.decode_raw({strings}, {_tf(dtype)})"


def _step_spec(feature: Feature) -> str:
    """The spec of a feature list for `tf.io.parse_sequence_example`."""
    step, stored = feature.step, _stored_dtype(feature)
    missing = ", allow_missing=True" if feature.nullable else ""
    if step.encoding != "list":
        return f"tf.io.FixedLenSequenceFeature([], {stored}{missing})"
    if not step.num_unknown:
        return f"tf.io.FixedLenSequenceFeature({_dims(step.shape)}, {stored}{missing})"
    return f"tf.io.RaggedFeature({stored}, row_splits_dtype=tf.int64)"


def _step_value(feature: Feature, parsed: str) -> str:
    """The steps of a feature list as one tensor, ragged where they differ in shape."""
    step = feature.step
    if step.encoding == "list":
        if len(step.shape) > 1 and step.num_unknown:
            return _ragged_steps(step, parsed, _reshape("step", step.shape))
        return _cast(feature.dtype, parsed)
    if step.num_unknown:
        return _ragged_steps(step, parsed, _decode(step, "step"))
    spec = f"tf.TensorSpec({_dims(step.shape)}, {_tf(step.dtype)})"
    return f"tf.map_fn(lambda step: {_decode(step, 'step')}, {parsed}, fn_output_signature={spec})"


def _ragged_steps(step: Feature, parsed: str, expression: str) -> str:
    rank = len(step.shape)
    if rank > 1:
        expression = f"tf.RaggedTensor.from_tensor({expression}, ragged_rank={rank - 1})"
    if step.encoding == "list":
        expression = _cast(step.dtype, expression)
    spec = f"tf.RaggedTensorSpec({[None] * rank}, {_tf(step.dtype)}, ragged_rank={rank - 1})"
    return (
        f"tf.map_fn(\n        lambda step: {expression},\n        {parsed},\n"
        f"        fn_output_signature={spec},\n    )"
    )


def _is_fixed_len_sequence(feature: Feature) -> bool:
    return len(feature.shape) > 1 and feature.shape[0] is None


def _reshape(expression: str, shape: FeatureShape) -> str:
    return f"tf.reshape({expression}, {[-1 if dim is None else dim for dim in shape]})"


def _cast(dtype: DType, expression: str) -> str:
    """Cast, unless the Example's list holds the dtype itself."""
    if dtype.is_string or dtype.name in ("int64", "float32"):
        return expression
    return f"tf.cast({expression}, {_tf(dtype)})"


def _stored_dtype(feature: Feature) -> str:
    if feature.encoding != "list" or feature.dtype.is_string:
        return "tf.string"
    return "tf.float32" if feature.dtype.is_float else "tf.int64"


def _tf(dtype: DType) -> str:
    if dtype.is_string:
        return "tf.string"
    return f"tf.{dtype.name}"


def _dims(shape: FeatureShape) -> str:
    return str(list(shape))


def _name(feature: Feature) -> str:
    return repr(feature.name)
