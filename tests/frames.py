"""TFRecord frames, written by the service's own framing, for tests of what stands on it."""

from app.codecs.messages.framing import frame_footer, frame_header


def frame(payload: bytes) -> bytes:
    return frame_header(len(payload)) + payload + frame_footer(payload)
