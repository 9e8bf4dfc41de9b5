"""Settings of Spark for sessions of tests, whose queries read few rows."""

SHORT_LIVED = {
    # Most queries run once and for a short time, so compiling them, by Spark or the JVM, takes longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    # Delta reads its logs as Spark jobs, many of them in every test that reads a table. These logs are short.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A session of tests opens thousands of tables, each of them for a minute. Delta would remember all of them for an
    # hour, and Spark would collect what no plan refers to any more only every half an hour: the memory was full then.
    "spark.databricks.delta.delta.log.cacheSize": "100",
    "spark.databricks.delta.delta.log.cacheRetentionMinutes": "5",
    "spark.cleaner.periodicGC.interval": "5min",
}
