"""`python -m shardsmith`: serve as the environment says."""

from .cli import explain_missing_packages

if __name__ == "__main__":
    with explain_missing_packages():
        from .launch import run

        run()
