"""`/v1/tensors`: any tensor form -> any tensor form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response

from ...codecs.array import AnyTensor, Array
from ...codecs.forms import MEDIA_TYPES, TENSOR_CODECS, FormName
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ...services.convert.describe import TensorDescriptionJson, describe_tensors
from ...services.convert.tensors import TensorConversion, convert_tensors, decode_tensors
from ..answers import VARY, arrow_format, description_answer, json_length_header
from ..body.headers import declared_length
from ..fast_path import Conversion, quick_conversion
from ..negotiation import Chosen, choose_input, choose_output, parse_json_bytes
from ..openapi import body_of, conversion, json_response
from ..query.applicability import refuse_inapplicable
from ..query.rows import refuse_repeated
from ..query.tensors import DescribeTensorsParameters, TensorsParameters, TensorsQuery
from ..state import Services, ServicesDependency
from ..work import Answer

__all__ = ["QUICK_ROUTES", "router"]

router = APIRouter(prefix="/v1/tensors", tags=["tensors"], default_response_class=Response)

_IN = {form: MEDIA_TYPES[form] for form in TENSOR_CODECS}
_OUT = {form: MEDIA_TYPES[form] for form in TENSOR_CODECS}


@router.post(
    "/serialize",
    operation_id="serialize_tensors",
    summary="Any tensor form to TensorProto",
    openapi_extra=conversion(
        _IN, _OUT, default="tensorproto", octets=True, json=("TensorsBody", "TensorsAnswer")
    ),
)
async def serialize(request: Request, query: TensorsParameters, services: ServicesDependency) -> Response:
    """What `tf.io.serialize_tensor` gives, byte for byte; several tensors: a TFRecord of such protos."""
    return await _convert(request, query, services, _prepare_serialize)


@router.post(
    "/parse",
    operation_id="parse_tensors",
    summary="TensorProto to any tensor form",
    openapi_extra=conversion(_IN, _OUT, default="json", json=("TensorsBody", "TensorsAnswer")),
)
async def parse(request: Request, query: TensorsParameters, services: ServicesDependency) -> Response:
    """A TensorProto (or any other tensor form) as JSON (or any other tensor form)."""
    return await _convert(request, query, services, _prepare_parse)


@router.post(
    "/describe",
    operation_id="describe_tensors",
    summary="Kind, dtype, shape and statistics of tensors in any form",
    openapi_extra={
        **body_of(_IN, json="TensorsBody"),
        **json_response(200, "One object a tensor, in input order.", list[TensorDescriptionJson]),
    },
)
async def describe(
    request: Request, query: DescribeTensorsParameters, services: ServicesDependency
) -> Response:
    """Name, kind, dtype, shape, size and statistics of each tensor."""
    refuse_repeated(request)
    input_form = choose_input(
        _IN, request.headers, from_=query.from_, default=None, raw_declared=query.dtype is not None
    )
    refuse_inapplicable(query, read=input_form)
    decode = query.decode_options(json_bytes=parse_json_bytes(request.headers))

    def work(body: ByteStream, budget: Budget, _: ExitStack) -> Answer:
        tensors = decode_tensors(body, input_form, decode, budget, services.spool)
        return description_answer(describe_tensors(tensors), "application/json")

    return await services.exchanges.run(request, work)


async def _convert(
    request: Request,
    query: TensorsQuery,
    services: Services,
    prepare: Callable[[TensorsQuery, Headers, Services], Conversion],
) -> Response:
    refuse_repeated(request)
    work = prepare(query, request.headers, services)
    return await services.exchanges.run(request, work, checked=query.delivery == "checked")


def _prepare_serialize(query: TensorsQuery, headers: Headers, services: Services) -> Conversion:
    chosen = choose_output(_OUT, headers, to=query.to, default="tensorproto", octets_are="tensorproto")
    return _prepare(query, headers, services, None, chosen)


def _prepare_parse(query: TensorsQuery, headers: Headers, services: Services) -> Conversion:
    chosen = choose_output(_OUT, headers, to=query.to, default="json", octets_are="raw")
    return _prepare(query, headers, services, "tensorproto", chosen)


def _prepare(
    query: TensorsQuery,
    headers: Headers,
    services: Services,
    default_input: FormName | None,
    chosen: Chosen[FormName],
) -> Conversion:
    """What is done with the body of a request that says this."""
    input_form = choose_input(
        _IN, headers, from_=query.from_, default=default_input, raw_declared=query.dtype is not None
    )
    refuse_inapplicable(query, read=input_form, written=chosen.form)
    plan = TensorConversion(
        input_form=input_form,
        output_form=chosen.form,
        output_chosen=chosen.explicit,
        decode=query.decode_options(
            input_form=input_form, output_form=chosen.form, json_bytes=parse_json_bytes(headers)
        ),
        encode=replace(query.encode_options(), arrow=arrow_format(chosen)),
        body_bytes=declared_length(headers),
    )

    def convert(body: ByteStream, budget: Budget, resources: ExitStack) -> Answer:
        converted = convert_tensors(body, plan, budget, services.spool, resources)
        headers = {**VARY, **json_length_header(converted.json_bytes)}
        if converted.form == "raw" and converted.tensors is not None:
            headers |= _raw_headers(converted.tensors, query.byte_order)
        if converted.form == "tfrecord" and converted.num_messages is not None:
            headers["Record-Count"] = str(converted.num_messages)
        # A form that was not asked for goes under its own name, not under the one negotiated.
        moved = converted.form != chosen.form and chosen.media_type in MEDIA_TYPES[chosen.form]
        media_type = MEDIA_TYPES[converted.form][0] if moved else chosen.media_type
        return Answer(media_type, converted.chunks, headers)

    return convert


def _raw_headers(tensors: Sequence[AnyTensor], byte_order: str) -> dict[str, str]:
    """dtype, shape (comma-separated, empty for a scalar) and byte order of a raw tensor."""
    (tensor,) = (tensor for tensor in tensors if isinstance(tensor, Array))
    return {
        "Tensor-Dtype": tensor.dtype.name,
        "Tensor-Shape": ",".join(map(str, tensor.shape)),
        "Tensor-Byte-Order": byte_order,
    }


QUICK_ROUTES: Final = {
    "/v1/tensors/serialize": quick_conversion(TensorsQuery, _prepare_serialize),
    "/v1/tensors/parse": quick_conversion(TensorsQuery, _prepare_parse),
}
