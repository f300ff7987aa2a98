"""TensorFlow's own reader, in a process of its own. Only that process imports TensorFlow."""
