"""The console: a web page that shows the live state of the broker. It exists only with
`--console-port`.
"""
