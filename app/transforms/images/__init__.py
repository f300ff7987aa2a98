"""Images: decoding, resizing, cutting, colours, encoding."""
