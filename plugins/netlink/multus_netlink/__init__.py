"""Networks without a process per call: the reference CNI plugins as Python objects, on the kernel's netlink sockets.

Each serves the configurations that its binary serves, and answers the same; a configuration with a key that it does not
serve exactly it declines, so that the binary takes over.
"""
