"""`/v1/tensors`: any tensor format -> any tensor format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.responses import Response

from ...codecs.array import AnyTensor, Array
from ...codecs.forms import MEDIA_TYPES, TENSOR_CODECS, FormName
from ...runtime.streams import ByteStream
from ...services.convert.describe import TensorDescriptionJson, describe_tensors
from ...services.convert.tensors import TensorConversion, convert_tensors, decode_tensors
from ..answers import VARY, arrow_format, description_answer, json_length_header
from ..execution.job import Answer, Job, Plan
from ..negotiation import Chosen, choose_input, choose_output, parse_json_bytes
from ..openapi import body_of, conversion, json_response
from ..operation import NegotiatingHeaders, Operation
from ..query.applicability import refuse_inapplicable
from ..query.tensors import DescribeTensorsParameters, TensorsParameters, TensorsQuery

router = APIRouter(
    prefix="/v1/tensors", tags=["tensors"], route_class=Operation, default_response_class=Response
)

_IN = {form: MEDIA_TYPES[form] for form in TENSOR_CODECS}
_OUT = {form: MEDIA_TYPES[form] for form, codec in TENSOR_CODECS.items() if codec.kinds}


@router.post(
    "/serialize",
    operation_id="serialize_tensors",
    summary="Any tensor format to TensorProto",
    openapi_extra=conversion(
        _IN, _OUT, default="tensorproto", octets=True, json=("TensorsBody", "TensorsAnswer")
    ),
)
def serialize(query: TensorsParameters, headers: NegotiatingHeaders) -> Plan:
    """What `tf.io.serialize_tensor` gives, byte for byte; several tensors: a TFRecord of such protos."""
    chosen = choose_output(_OUT, headers, to=query.to, default="tensorproto", octets_are="tensorproto")
    return _conversion(query, headers, None, chosen)


@router.post(
    "/parse",
    operation_id="parse_tensors",
    summary="TensorProto to any tensor format",
    openapi_extra=conversion(_IN, _OUT, default="json", json=("TensorsBody", "TensorsAnswer")),
)
def parse(query: TensorsParameters, headers: NegotiatingHeaders) -> Plan:
    """A TensorProto (or any other tensor format) as JSON (or any other tensor format)."""
    chosen = choose_output(_OUT, headers, to=query.to, default="json", octets_are="raw")
    return _conversion(query, headers, "tensorproto", chosen)


@router.post(
    "/describe",
    operation_id="describe_tensors",
    summary="Kind, dtype, shape and statistics of tensors in any format",
    openapi_extra={
        **body_of(_IN, json="TensorsBody"),
        **json_response(200, "One object a tensor, in input order.", list[TensorDescriptionJson]),
    },
)
def describe(query: DescribeTensorsParameters, headers: NegotiatingHeaders) -> Plan:
    """Name, kind, dtype, shape, size and statistics of each tensor."""
    input_form = choose_input(
        _IN, headers, from_=query.from_, default=None, raw_declared=query.dtype is not None
    )
    refuse_inapplicable(query, read=input_form)
    decode = query.decode_options(json_bytes=parse_json_bytes(headers))

    def work(job: Job, body: ByteStream) -> Answer:
        options = replace(decode, images=job.services.images)
        tensors = decode_tensors(body, input_form, options, job)
        return description_answer(describe_tensors(tensors), "application/json")

    return Plan(work, "conversion")


def _conversion(
    query: TensorsQuery, headers: Headers, default_input: FormName | None, chosen: Chosen[FormName]
) -> Plan:
    input_form = choose_input(
        _IN, headers, from_=query.from_, default=default_input, raw_declared=query.dtype is not None
    )
    refuse_inapplicable(query, read=input_form, written=chosen.form)
    conversion = TensorConversion(
        input_form=input_form,
        output_form=chosen.form,
        output_chosen=chosen.explicit,
        decode=query.decode_options(
            input_form=input_form, output_form=chosen.form, json_bytes=parse_json_bytes(headers)
        ),
        encode=replace(query.encode_options(), arrow=arrow_format(chosen)),
    )

    waits = TENSOR_CODECS[input_form].waits or TENSOR_CODECS[chosen.form].waits

    def work(job: Job, body: ByteStream) -> Answer:
        lent = conversion.with_images(job.services.images) if waits else conversion
        converted = convert_tensors(body, lent, job, job.body_bytes)
        headers = {**VARY, **json_length_header(converted.json_bytes)}
        if converted.form == "raw" and converted.tensors is not None:
            headers |= _raw_headers(converted.tensors, query.byte_order)
        if converted.form == "tfrecord" and converted.num_messages is not None:
            headers["Record-Count"] = str(converted.num_messages)
        # A form that was not asked for goes under its own name, not under the one negotiated.
        moved = converted.form != chosen.form and chosen.media_type in MEDIA_TYPES[chosen.form]
        media_type = MEDIA_TYPES[converted.form][0] if moved else chosen.media_type
        return Answer(media_type, converted.chunks, headers, whole=converted.whole)

    complete_first = query.delivery == "checked"
    return Plan(work, "conversion", complete_first, on_loop=None if waits else work)


def _raw_headers(tensors: Sequence[AnyTensor], byte_order: str) -> dict[str, str]:
    """dtype, shape (comma-separated, empty for a scalar) and byte order of a raw tensor."""
    (tensor,) = (tensor for tensor in tensors if isinstance(tensor, Array))
    return {
        "Tensor-Dtype": tensor.dtype.name,
        "Tensor-Shape": ",".join(map(str, tensor.shape)),
        "Tensor-Byte-Order": byte_order,
    }
