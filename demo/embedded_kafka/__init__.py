"""A real Kafka on this machine: brokers, their jars, and what makes them start quickly and end surely."""
