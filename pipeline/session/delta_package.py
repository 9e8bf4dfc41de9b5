"""Which package of Delta a Spark needs: `python pipeline/session/delta_package.py VERSION PACKAGES` prints it.

spark-submit.sh calls this file as a program, before laglake's packages are on Python's path.
"""

import re
import sys

BUILDS = ("4.0", "4.1", "4.2")
"""The versions of Spark for which the pinned Delta, 4.4.0, has a build on Maven Central. When Spark 4.3 came out, there
was none for it: Spark's resolver then printed a page of addresses, and named no cause."""


def delta_for(spark_version: str, packages: str) -> str:
    """The packages, with the name of Delta's package changed: it contains the first two numbers of Spark's version.

    Raises ValueError if Delta has no build for this version of Spark.
    """
    version = ".".join(spark_version.split(".")[:2])
    delta = re.search(r"delta-spark_[^:]*:([^,]+)", packages)
    if delta and version not in BUILDS:
        known = f"{', '.join(BUILDS[:-1])} or {BUILDS[-1]}"
        raise ValueError(
            f"Delta {delta[1]} has no build for Spark {spark_version}: use Spark {known}, "
            "or put a build of Delta for it into its folder jars"
        )
    return re.sub(r"(?<=delta-spark_)\d+\.\d+(?=_)", version, packages)


if __name__ == "__main__":
    try:
        sys.stdout.write(delta_for(*sys.argv[1:]))
    except ValueError as exc:
        sys.exit(str(exc))
