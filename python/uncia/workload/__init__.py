"""What is sent, and when: arrival processes, mixes of functions, and the load generator."""
