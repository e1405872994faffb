"""The gradebook of a class, made from its run folder: grades, CSV files for imports, HTML pages."""
