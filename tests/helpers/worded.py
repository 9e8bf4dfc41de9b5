"""Problems with their words."""

from pyspark.sql import DataFrame

from pipeline.analytics.findings.problem import WORDED
from pipeline.analytics.findings.words.kinds import with_words


def worded(problems: DataFrame) -> DataFrame:
    """The rows of `problem` as `finding_history` gets them."""
    found = with_words(problems.toArrow())
    return problems.sparkSession.createDataFrame(found if found.num_rows else [], WORDED)
