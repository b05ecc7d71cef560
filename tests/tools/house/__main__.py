"""Print figures about the code: imports between rooms, the largest classes and functions, names in
docstrings that do not exist, what a start loads, the function calls of single requests, and the
words of pages.

No figure has a limit. They show a reader where to look, and a reviewer what a change did.
"""

from __future__ import annotations

from house import names, requests, rooms, sizes, start, words


def main() -> None:
    """Print all parts of the report."""
    for title, lines in (
        ("Imports between rooms (a room is a folder, or a module at the top of a package)", rooms),
        ("Largest classes and functions, in lines", sizes),
        ("Names in docstrings and comments that do not exist", names),
        ("Function calls of one request with all its flushes", requests),
        ("What a start with an empty directory loads", start),
        ("Words of the pages that people write", words),
    ):
        print(f"\n{title}\n")
        for line in lines.report():
            print(f"  {line}")


if __name__ == "__main__":
    main()
