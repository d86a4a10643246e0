"""Decisions.  Speaks to the world through ports and to plugins through the hooks; does no I/O of its own."""
