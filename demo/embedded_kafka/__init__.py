"""A real Kafka on this machine: brokers, their jars, and the code that starts them quickly and always stops them."""
