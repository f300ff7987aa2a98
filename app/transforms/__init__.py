"""Preprocessing with numpy and TensorFlow, to come; TensorFlow is imported in here alone, inside functions."""
