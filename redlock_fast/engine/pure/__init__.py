"""The engine in Python, where nothing is compiled."""
