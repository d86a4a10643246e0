"""The public contract with hook plugins: the specifications, and the manager that calls them."""
