"""The main functions, one module per executable: parse, wire, run, exit."""
