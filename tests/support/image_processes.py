"""Processes that decode images, one set for all tests: starting one takes longer than most tests."""

from functools import cache

from app.transforms.images.processes import ImageProcesses


@cache
def shared_images() -> ImageProcesses:
    """Those that all share. A test that ends or fills some has its own."""
    return ImageProcesses()
