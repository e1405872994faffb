"""`make log` and `make check-log`: one recorded entry for each step of a kernel."""
