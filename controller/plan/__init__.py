"""Decisions: values in, values out; no I/O, no clock, no luck, no log."""
