"""Ports made real: files, processes, namespaces, the API server.  No adapter imports another.

Errors of libraries stop here: each adapter translates them to multus.errors.
"""
