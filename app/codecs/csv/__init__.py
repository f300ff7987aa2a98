"""CSV: rows of scalars, one a line."""
