"""conf/log4j2.properties: how a line of the JVM's log looks. Names from Kafka may be in it."""

from typing import Any

from pyspark.sql import SparkSession

from tests.conftest import ROOT


def test_log_lines_of_the_jvm_contain_no_escape_codes_for_the_terminal(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    file = jvm.java.net.URI.create((ROOT / "conf" / "log4j2.properties").as_uri())
    factory = log4j.core.config.ConfigurationFactory.getInstance()
    configuration = factory.getConfiguration(log4j.core.LoggerContext("test"), "test", file)
    configuration.initialize()
    text = "a\x1b[31m\x9b2J\a\r\u2028\u2029\u202eb\n\tc $1 \\ {ö} 😀"
    event = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName("org.some.Class")
    event = event.setLevel(log4j.Level.WARN)
    event = event.setMessage(log4j.message.SimpleMessage(text))
    event = event.setThrown(jvm.java.lang.IllegalStateException(text)).build()
    logged = configuration.getAppender("stderr").getLayout().toSerializable(event)
    shown = "a?[31m?2J?????b\n\tc $1 \\ {ö} 😀"
    message, *trace = logged.partition("Z ")[2].split("\n\tat ")
    assert message == f"WARN Class: {shown}\njava.lang.IllegalStateException: {shown}"
    assert trace
