"""Preprocessing with numpy and TensorFlow, to come; TensorFlow is imported here alone, inside functions."""
