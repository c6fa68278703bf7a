"""``python -m tuner``: the same as the command ``tuner``."""

from tuner.cli import main

if __name__ == "__main__":
    main()
