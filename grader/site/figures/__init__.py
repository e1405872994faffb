"""The course's interactive figures: what each shows, computed in Python, and the pages written from it."""
