"""Metrics and traces of a client, for the libraries that export them."""
