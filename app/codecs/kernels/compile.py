"""Compiles the kernels. The only module that imports numba and llvmlite.

Each kernel gets explicit signatures, derived from its annotations, one for each type of a union: arrays
that it only reads are typed read-only, which accepts writable ones too, so that nothing is compiled later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from typing import Any, Final, cast

import numba
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import overload, register_jitable

from . import addresses, cache, crc32c, fingerprint, memory, number_fields, parquet, quantize, utf8, varint
from .images import resample
from .json import floats, number, rows, string, tape, write
from .messages import encode, framing, head, keys, layout, read, record_index, values, wire
from .table import FunctionT


def _array(element: Any, *, readonly: bool) -> Any:
    return types.Array(element, 1, "C", readonly=readonly)


#: Annotation of a kernel's argument -> numba's type.
_TYPES: Final[dict[str, Any]] = {
    "int": types.int64,
    "np.uint64": types.uint64,
    "Bytes": _array(types.uint8, readonly=True),
    "Ints": _array(types.int64, readonly=True),
    "Words": _array(types.uint64, readonly=True),
    "Singles": _array(types.float32, readonly=True),
    "MutableBytes": _array(types.uint8, readonly=False),
    "MutableFlags": _array(types.uint8, readonly=False),
    "MutableInts": _array(types.int64, readonly=False),
    "MutableWords": _array(types.uint64, readonly=False),
    "MutableSingles": _array(types.float32, readonly=False),
    "MutableDoubles": _array(types.float64, readonly=False),
}

#: Without numba's reference counting (`_nrt`): kernels allocate nothing, the caller holds their arrays, and
#: counting at each call of a function that takes an array made decoding eight times slower.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "boundscheck": True, "_nrt": False}

#: Checked at each access, their loops would not become vector instructions. They check their tables once.
_CHECK_ONCE: Final = frozenset({resample.__name__, quantize.__name__})

_MODULES: Final = (
    memory,
    addresses,
    varint,
    utf8,
    crc32c,
    framing,
    encode,
    wire,
    head,
    keys,
    layout,
    values,
    read,
    number,
    number_fields,
    string,
    rows,
    tape,
    floats,
    write,
    parquet,
    record_index,
    resample,
    fingerprint,
    quantize,
)

_SINGLE = ir.FloatType()
_LANES = ir.VectorType(_SINGLE, resample.LANES)
_FEW_TAPS: Final = 4
_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)

# Untyped on purpose: numba fills `config` as it is imported.
_config: Any = numba.config
_memcpy: Any = cgutils.raw_memcpy
_variable: Any = cgutils.alloca_once_value


def _intrinsic(typing: Callable[..., Any]) -> Any:
    """Numba's decorator, without its types: it takes away the first argument."""
    return numba.extending.intrinsic(typing)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _I8.as_pointer()), [index])


@_intrinsic
def _copy(_context: Any, target: Any, at: Any, source: Any, begin: Any, size: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        _memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@_intrinsic
def _load(_context: Any, source: Any, begin: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load(builder.bitcast(address, _I64.as_pointer()), align=1)

    return types.uint64(source, types.int64), generate


@_intrinsic
def _store(_context: Any, target: Any, at: Any, word: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(address, _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.uint64), generate


@_intrinsic
def _address(_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _I64)

    return types.int64(array), generate


@_intrinsic
def _copy_from(_context: Any, target: Any, at: Any, address: Any, size: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        _memcpy(builder, to, builder.inttoptr(args[2], _I8.as_pointer()), args[3], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64, types.int64), generate


@_intrinsic
def _int_from(_context: Any, address: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I64.as_pointer()), align=1)

    return types.int64(types.int64), generate


@_intrinsic
def _byte_from(_context: Any, address: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I8.as_pointer()))

    return types.uint8(types.int64), generate


@_intrinsic
def _word_from(_context: Any, address: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I64.as_pointer()), align=1)

    return types.uint64(types.int64), generate


@_intrinsic
def _prefetch(_context: Any, source: Any, begin: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], args[0], args[1])
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        # Data, to be read, and kept in every level of the cache.
        builder.call(prefetch, [address, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


@_intrinsic
def _bits(_context: Any, word: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        zeros = builder.ctlz(args[0], ir.IntType(1)(1))
        return builder.sub(_I64(64), zeros)

    return types.int64(types.uint64), generate


@_intrinsic
def _multiply_high(_context: Any, left: Any, right: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), _I64)

    return types.uint64(types.uint64, types.uint64), generate


@_intrinsic
def _quotient_bits(_context: Any, dividend: Any, divisor: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        quotient = builder.fdiv(builder.sitofp(args[0], ir.DoubleType()), args[1])
        return builder.bitcast(quotient, _I64)

    return types.uint64(types.int64, types.float64), generate


@_intrinsic
def _crc_instruction(_context: Any, crc: Any, word: Any) -> Any:  # noqa: ARG001 (numba matches names)
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        name = "llvm.x86.sse42.crc32.64.64"
        instruction = builder.module.declare_intrinsic(name, (), ir.FunctionType(_I64, [_I64, _I64]))
        return builder.call(instruction, args)

    return types.uint64(types.uint64, types.uint64), generate


def _lanes_at(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    pointer = _pointer(context, builder, array_type, array, builder.mul(index, _I64(4)))
    return builder.bitcast(pointer, _LANES.as_pointer())


def _load_lanes(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.load(_lanes_at(context, builder, array_type, array, index), align=4)


def _spread(builder: Any, number: Any) -> Any:
    """A number, in each lane."""
    undefined = ir.Constant(_LANES, ir.Undefined)
    first = builder.insert_element(undefined, number, _I32(0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(_I32, resample.LANES), [0] * resample.LANES)
    )


@_intrinsic
def _blend_lanes(
    _context: Any,
    target: Any,
    at: Any,  # noqa: ARG001 (numba matches names)
    source: Any,
    left: Any,  # noqa: ARG001
    right: Any,  # noqa: ARG001
    share: Any,  # noqa: ARG001
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lefts = _load_lanes(context, builder, signature.args[2], args[2], args[3])
        rights = _load_lanes(context, builder, signature.args[2], args[2], args[4])
        rest = builder.fmul(builder.fsub(rights, lefts), _spread(builder, args[5]))
        to = _lanes_at(context, builder, signature.args[0], args[0], args[1])
        builder.store(builder.fadd(lefts, rest), to, align=4)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64, types.float32), generate


@_intrinsic
def _sum_lanes(
    _context: Any,
    target: Any,
    at: Any,  # noqa: ARG001 (numba matches names)
    source: Any,
    channel: Any,  # noqa: ARG001
    channels: Any,  # noqa: ARG001
    indices: Any,
    weights: Any,
    first: Any,  # noqa: ARG001
    count: Any,  # noqa: ARG001
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, at, _, channel, channels, _, _, first, count = args

        def product_of(tap: Any) -> Any:
            indices = context.make_array(signature.args[5])(context, builder, args[5])
            weights = context.make_array(signature.args[6])(context, builder, args[6])
            pixel = builder.load(builder.gep(indices.data, [tap]))
            weight = builder.load(builder.gep(weights.data, [tap]))
            begin = builder.add(builder.mul(pixel, channels), channel)
            values = _load_lanes(context, builder, signature.args[2], args[2], begin)
            return builder.fmul(_spread(builder, weight), values)

        sums = _variable(builder, product_of(first))

        def add(tap: Any) -> None:
            builder.store(builder.fadd(builder.load(sums), product_of(tap)), sums)

        # Most have few taps: as a loop alone, these took half as long again.
        for tap in range(1, _FEW_TAPS):
            with builder.if_then(builder.icmp_signed(">", count, _I64(tap))):
                add(builder.add(first, _I64(tap)))
        begin, end = builder.add(first, _I64(_FEW_TAPS)), builder.add(first, count)
        with (
            builder.if_then(builder.icmp_signed(">", count, _I64(_FEW_TAPS))),
            cgutils.for_range_slice(builder, begin, end, _I64(1)) as (tap, _),
        ):
            add(tap)
        builder.store(
            builder.load(sums), _lanes_at(context, builder, signature.args[0], args[0], at), align=4
        )
        return context.get_dummy_value()

    whole = types.int64
    return types.void(target, whole, source, whole, whole, indices, weights, whole, whole), generate


def has_crc_instruction() -> bool:
    """Whether the code that numba makes here may use the CRC32C instruction of SSE4.2.

    numba compiles for the processor it runs on, unless NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say
    otherwise; what the target lacks makes LLVM abort the whole process.
    """
    # LLVM keeps the instruction apart from the rest of SSE4.2, as the feature "crc32".
    here = bool(binding.get_host_cpu_features().get("crc32"))
    return here and (_config.CPU_FEATURES is None or "+crc32" in _config.CPU_FEATURES.split(","))


def _replace(plain: Any, compiled: Any) -> None:
    """Let compiled callers of `plain` use `compiled`; not strict, or both would need the same signature."""
    overload(plain, strict=False)(lambda *_: compiled)


def _options(module: str) -> dict[str, Any]:
    if module not in _CHECK_ONCE:
        return _OPTIONS
    # A check of each divisor, too, would keep a loop from becoming vector instructions.
    return _OPTIONS | {"boundscheck": False, "error_model": "numpy"}


def _register_callees() -> None:
    _replace(memory.raw_copy, lambda target, at, source, begin, size: _copy(target, at, source, begin, size))
    _replace(memory.raw_load, lambda source, begin: _load(source, begin))
    _replace(memory.raw_prefetch, lambda source, begin: _prefetch(source, begin))
    _replace(memory.raw_store, lambda target, at, word: _store(target, at, word))
    _replace(addresses.raw_address, lambda array: _address(array))
    _replace(addresses.raw_copy_from, lambda target, at, address, size: _copy_from(target, at, address, size))
    _replace(addresses.raw_block_from, lambda target, at, address: _copy_from(target, at, address, 32))
    _replace(addresses.raw_half_from, lambda target, at, address: _copy_from(target, at, address, 4))
    _replace(addresses.raw_byte_from, lambda address: _byte_from(address))
    _replace(addresses.raw_int_from, lambda address: _int_from(address))
    _replace(addresses.raw_word_from, lambda address: _word_from(address))
    _replace(memory.raw_bit_length, lambda word: _bits(word))
    _replace(memory.raw_multiply_high, lambda left, right: _multiply_high(left, right))
    _replace(memory.raw_multiply_low, lambda left, right: left * right)
    _replace(memory.raw_quotient_bits, lambda dividend, divisor: _quotient_bits(dividend, divisor))
    _replace(
        resample.raw_blend_lanes,
        lambda target, at, source, left, right, share: _blend_lanes(target, at, source, left, right, share),
    )
    _replace(
        resample.raw_sum_lanes,
        lambda target, at, source, channel, channels, indices, weights, first, count: _sum_lanes(
            target, at, source, channel, channels, indices, weights, first, count
        ),
    )
    if has_crc_instruction():
        _replace(crc32c.raw_crc_word, lambda crc, word: _crc_instruction(crc, word))
    else:
        register_jitable(**_OPTIONS)(crc32c.raw_crc_word)
    for module in _MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("raw_"):
                register_jitable(forceinline=True, **_options(module.__name__))(function)


_register_callees()


def compiled(function: FunctionT, /) -> FunctionT:
    """The kernel of a plain function, out of the cache where it is there."""
    parameters = inspect.signature(function).parameters.values()
    signatures = list(
        product(*([_TYPES[name] for name in parameter.annotation.split(" | ")] for parameter in parameters))
    )
    folder = cache.writable_folder()
    before = _config.CACHE_DIR
    # numba looks at this once, as it decorates; others in the process keep their own.
    _config.CACHE_DIR = str(folder or "")
    try:
        kernel: Any = njit(signatures, cache=folder is not None, **_options(function.__module__))(function)
    finally:
        _config.CACHE_DIR = before
    for compiled_code in kernel.overloads.values():
        _forget_bitcode(compiled_code.library)
    return cast("FunctionT", kernel)


def _forget_bitcode(library: Any) -> None:
    """Free what numba keeps of a kernel so that others may inline it, which none does: 15 MiB for all.

    numba has no public way to do so.
    """
    members = vars(library)
    bitcode = members["_shared_module"]
    if bitcode is not None and bitcode is not members["_final_module"]:
        bitcode.close()
        members["_shared_module"] = None
