"""Metrics and traces of a client, for what collects them."""
