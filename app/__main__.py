"""`python -m shardsmith`: serve as the environment says."""

from .launch import run

if __name__ == "__main__":
    run()
