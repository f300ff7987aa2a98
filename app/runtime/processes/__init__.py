"""Processes with limits on memory and time, and the numbers that workers share."""
