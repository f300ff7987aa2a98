"""Encoded images: what their headers say, and how they are decoded and encoded by `runtime.images`."""
