"""`python -m coatcheck.cli`: the command without its installed script."""

from coatcheck.cli import main

if __name__ == "__main__":
    main()
