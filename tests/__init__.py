"""The tests; a package, so that no installed `tests` can stand in its place."""
