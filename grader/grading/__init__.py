"""One graded run: the pytest plugin, its options and its progress."""
