"""The notebooks: what they import, how they are built from their sources, and what they may not say."""
