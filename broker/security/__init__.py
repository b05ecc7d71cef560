"""Who a client is: SASL's mechanisms, the users, and what a connection has shown of itself."""
