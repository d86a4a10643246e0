"""For authors of plugins and for our own tests: fakes, strategies, an API server stand-in, a scriptable delegate."""
