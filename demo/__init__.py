"""A real Kafka on this machine, with readers that behave in every odd way the product reports.

It serves the demo, the tests and the benchmarks; nothing that runs in production imports it.

    with EmbeddedKafka(Path("build/kafka")) as kafka, Workload(kafka) as workload:
        workload.wait_until_settled()
"""
