"""Keys and values with schemas: Avro, Protobuf and JSON Schema, from a schema registry or from
files.

The modules import fastavro, protobuf, grpcio-tools and jsonschema, of the extra `schemas`, when a
schema of their kind is used.
"""
