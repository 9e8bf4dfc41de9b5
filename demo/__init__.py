"""A real Kafka on this machine, with readers that lag in different ways.

It is used by the demo, the tests and the benchmarks; nothing that runs in production imports it.

    with EmbeddedKafka(Path("build/kafka")) as kafka, Workload(kafka) as workload:
        workload.wait_until_settled()
"""
