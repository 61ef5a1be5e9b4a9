"""Structures of C sources as classes of ctypes, and files that a test and a library share."""

import ctypes
import mmap
import re
from functools import cache

TYPES = {
    "char": ctypes.c_char,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
    "double": ctypes.c_double,
}
FIELD = re.compile(r"(?:struct )?(\w+) (\w+)(?:\[([\w +]+)\])?;")


@cache
def structures(*sources):
    """The structures that C sources define as `struct NAME {...};` before their functions, by name."""
    text = "".join(path.read_text() for path in sources).partition('#include "../script.h"')[0]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    numbers = dict(re.findall(r"^#define (\w+) (\d+)$", text, re.MULTILINE))
    found = dict(TYPES)
    for name, body in re.findall(r"^struct (\w+) \{(.*?)\};", text, re.DOTALL | re.MULTILINE):
        fields = []
        for kind, field, length in FIELD.findall(body):
            count = sum(int(numbers.get(term, term)) for term in length.split(" + ") if term)
            fields.append((field, found[kind] * count if count else found[kind]))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def map_structure(path, kind):
    """A new file of zeros that is read and written as a structure."""
    length = ctypes.sizeof(kind)
    with path.open("w+b") as file:
        file.truncate(length)
        return kind.from_buffer(mmap.mmap(file.fileno(), length))
