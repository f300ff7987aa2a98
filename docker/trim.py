"""Removes from an environment what the service never loads: trim.py ENVIRONMENT, in the build of the image.

Wheels also serve those who build on a package: they hold headers, sources, tests, and clients of stores that
the service reaches in another way. `tests/deploy/test_image.py` uses every format in what is left.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

DEVELOPMENT: Final = (
    *("**/*.a", "**/*.c", "**/*.cpp", "**/*.h", "**/*.hpp", "**/*.pxd", "**/*.pxi", "**/*.pyi", "**/*.pyx"),
    *("**/test", "**/tests", "**/*_tests.*.so"),
    *("numpy/distutils", "numpy/f2py", "pyarrow/include", "pyarrow/includes", "pyarrow/src"),
)
INSTALLERS: Final = ("_distutils_hack", "distutils-precedence.pth", "pip*", "setuptools*", "wheel*")
UNUSED: Final = (
    # Arrow's own clients of stores, and its RPC. obstore reaches every store.
    *("pyarrow/*_flight*", "pyarrow/*_s3*", "pyarrow/_azurefs*", "pyarrow/_gcsfs*", "pyarrow/_hdfs*"),
    # Formats that the service does not offer.
    *("pyarrow/*_parquet_encryption*", "pyarrow/_dataset*", "pyarrow/_feather*", "pyarrow/_orc*"),
    "pyarrow/_substrait*",
    # A wheel has no links, so this library is there three times; libarrow_python.so.<version> is loaded.
    *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*"),
    # Pillow reads and writes PNG and WebP here: no AVIF, no fonts, no colour profiles, no windows.
    *("PIL/_avif*", "PIL/_imagingcms*", "PIL/_imagingft*", "PIL/_imagingtk*", "PIL/_tkinter_finder*"),
    *("pillow.libs/libavif*", "pillow.libs/libbrotli*", "pillow.libs/libfreetype*"),
    *("pillow.libs/libharfbuzz*", "pillow.libs/liblcms2*", "pillow.libs/libpng*"),
    # Kernels use one thread each, and no GPU.
    *("numba/cuda", "numba/np/ufunc/omppool*", "numba/np/ufunc/tbbpool*"),
)
#: botocore describes every service of AWS. Collection calls S3, and STS for web identity.
BOTOCORE: Final = "botocore/data"
BOTOCORE_KEPT: Final = ("s3", "sts", "*.json", "*.json.gz")
COMMANDS_KEPT: Final = ("python*", "shardsmith")


def trim(environment: Path, packages: Path) -> None:
    """Delete what the lists above name, and every command but the service's."""
    doomed = {path for glob in (*DEVELOPMENT, *INSTALLERS, *UNUSED) for path in packages.glob(glob)}
    doomed |= _all_but(packages / BOTOCORE, BOTOCORE_KEPT) | _all_but(environment / "bin", COMMANDS_KEPT)
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def strip(packages: Path) -> None:
    """Remove the symbols that only debuggers read.

    Not from `*.libs`: these libraries were rewritten to be moved there, and may not load once stripped.
    """
    for library in packages.rglob("*.so*"):
        if not library.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", library], check=True)  # noqa: S603, S607  # in a build


def _all_but(folder: Path, kept: tuple[str, ...]) -> set[Path]:
    return set(folder.iterdir()) - {path for glob in kept for path in folder.glob(glob)}


def main() -> None:
    environment = Path(sys.argv[1])
    [packages] = environment.glob("lib/python3.*/site-packages")
    trim(environment, packages)
    strip(packages)


if __name__ == "__main__":
    main()
