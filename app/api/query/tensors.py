"""The query parameters of the routes for tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field, JsonValue

from ...codecs.options import TensorDecodeOptions, TensorEncodeOptions
from ...domain.compression import Compression
from ...domain.dtypes import DTYPES, parse_dtype
from ...domain.limits import KIB
from ...domain.tensor import Shape, check_shape
from ...errors import MalformedInput
from .rows import ConversionQuery, NoQuery
from .types import Channels, EitherCompression, From, NonfiniteIn, Order, Quality, SparseAs, TensorKind


class BodyOfTensorsQuery(NoQuery):
    """What every route that reads tensors takes."""

    from_: From = None
    dtype: Annotated[
        str | None,
        Field(
            description="dtype of a raw or untyped JSON body; typed formats must agree, or see `lossy`. The "
            "names of the Open Inference Protocol and common other ones are taken, too.",
            json_schema_extra={"enum": list[JsonValue](DTYPES)},
        ),
    ] = None
    shape: Annotated[
        str | None, Field(description="Comma-separated; empty for a scalar.", examples=["2,3"])
    ] = None
    byte_order: Annotated[Literal["little", "big"], Field(description="Of raw bodies and raw answers.")] = (
        "little"
    )
    order: Order = "C"
    kind: TensorKind = None
    channels: Channels = "0"

    def body_options(
        self,
        *,
        nonfinite: Literal["error", "null", "bare"],
        compression: Compression | None,
        json_bytes: int | None,
    ) -> TensorDecodeOptions:
        return TensorDecodeOptions(
            dtype=None if self.dtype is None else parse_dtype(self.dtype),
            shape=_parse_shape(self.shape),
            byte_order=self.byte_order,
            order=self.order,
            kind=self.kind,
            json_bytes=json_bytes,
            nonfinite=nonfinite,
            compression=compression,
            channels=int(self.channels),
        )


class TensorsQuery(BodyOfTensorsQuery, ConversionQuery):
    """Parameters of the conversions under `/v1/tensors`."""

    sparse: SparseAs = "single"
    layout: Annotated[Literal["flat", "nested", "oip"], Field(description="Layout of a JSON answer.")] = (
        "flat"
    )
    compression: EitherCompression = None
    quality: Quality = 95
    lossy: Annotated[
        Literal["allow"] | None,
        Field(description="`allow` rounds dense tensors of floats to the narrower float in `dtype`."),
    ] = None

    def decode_options(
        self, *, input_form: str, output_form: str, json_bytes: int | None
    ) -> TensorDecodeOptions:
        # Where both are TFRecord, the parameter speaks of the answer and the body is detected.
        of_input = input_form == "tfrecord" != output_form
        options = self.body_options(
            nonfinite=self.nonfinite_in,
            compression=self.compression if of_input else None,
            json_bytes=json_bytes,
        )
        return replace(options, lossy=self.lossy == "allow")

    def encode_options(self) -> TensorEncodeOptions:
        return TensorEncodeOptions(
            layout=self.layout,
            nonfinite=self.nonfinite_out,
            int64=self.int64,
            text=self.bytes_,
            byte_order=self.byte_order,
            order=self.order,
            sparse=self.sparse,
            b64=self.b64,
            compression=self.compression or "none",
            quality=self.quality,
        )


class DescribeTensorsQuery(BodyOfTensorsQuery):
    """Parameters of `POST /v1/tensors/describe`."""

    nonfinite: NonfiniteIn = None
    compression: Annotated[
        Compression | None, Field(description="Of a TFRecord body; detected by default.")
    ] = None

    def decode_options(self, *, json_bytes: int | None) -> TensorDecodeOptions:
        return self.body_options(
            nonfinite=self.nonfinite or "error", compression=self.compression, json_bytes=json_bytes
        )


def _parse_shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    dims = [dim.strip() for dim in text.split(",")] if text.strip() else []
    if len(text) > 8 * KIB or not all(dim.isascii() and dim.isdigit() for dim in dims):
        raise MalformedInput(
            f"shape={text[:60]!r} is not a comma-separated list of dimensions, like 2,3.",
            code="invalid_shape",
        )
    # Twenty digits behind the zeros are past int64 already; longer ones need not be converted to be refused.
    return check_shape([int(dim.lstrip("0")[:20] or "0") for dim in dims])


TensorsParameters = Annotated[TensorsQuery, Query()]
DescribeTensorsParameters = Annotated[DescribeTensorsQuery, Query()]
