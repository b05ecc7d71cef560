"""What our processes have besides a broker: an HTTP server, their log, and SIGHUP."""
