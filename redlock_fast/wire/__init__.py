"""Bytes: which command for which verb and server, and how replies are parsed. No sockets, no votes."""
