"""Kernels for images: resampling."""
