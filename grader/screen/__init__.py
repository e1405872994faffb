"""The static check of a submission, before any of it runs."""
