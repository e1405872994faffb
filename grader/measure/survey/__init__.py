"""`make survey`: the attributes of a GPU, and what is measured on it."""
