"""The built-in plugins, one module per family of hooks.  Objects that are given ports; they know no adapter."""
