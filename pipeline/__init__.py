"""laglake: Kafka lag analytics from history, in Delta tables."""
