"""Keys and values by schemas: Avro, Protobuf and JSON Schema, of a schema registry or of files.

The modules import fastavro, protobuf, grpcio-tools and jsonschema, of the extra `schemas`, when a
schema of their kind is used.
"""
