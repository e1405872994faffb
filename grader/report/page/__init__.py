"""A graded run as one page of HTML, made from its results alone."""
