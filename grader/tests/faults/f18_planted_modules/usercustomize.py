raise SystemExit("a planted module was imported")
