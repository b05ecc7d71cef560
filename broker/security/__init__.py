"""Authentication and authorization: SASL mechanisms, users, principals, ACLs, and the audit log."""
