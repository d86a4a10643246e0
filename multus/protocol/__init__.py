"""Bytes to values and back: pure functions, no I/O but through the sockets that wire is handed."""
