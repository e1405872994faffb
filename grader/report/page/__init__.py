"""The HTML page of a graded run, made from its results alone."""
