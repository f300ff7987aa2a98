"""Elements of any dtype out of any bytes, for tests that draw them."""

from app.domain.dtypes import BOOL, DType


def element_bytes(content: bytes, dtype: DType) -> bytes:
    """The same bytes without bits that an element of `dtype` does not have, as TensorFlow holds them."""
    if dtype is BOOL:
        return bytes(byte & 1 for byte in content)
    if dtype.is_narrow:
        return bytes(byte & (1 << dtype.num_bits) - 1 for byte in content)
    return content
