"""For programs that use the service: imports nothing of it, only httpx and numpy."""
