"""Grade a class: collect submissions, grade them in a pool of workers, write a run folder; see README.md."""
