"""Authentication and authorization: SASL's mechanisms, users, principals, ACLs, and the audit."""
