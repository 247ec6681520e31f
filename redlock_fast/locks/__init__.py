"""What a lock object is and may do, for every kind, whichever way it waits. No driver, no thread."""
