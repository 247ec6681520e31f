"""From a URL to a connected, probed, trusted master, and back again after every failure."""
