"""A class: submissions are taken in, graded by a pool of workers, and kept in a run folder; see README.md."""
