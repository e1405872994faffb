"""The process that runs a submission, and the judge's client to it."""
