"""What the server formatted, read back: its lines, the words of a content, and the exact numbers in it."""

import json

from record.record_files import FIXTURES, check

# Longer parts of a document are divided.
LINE_CHARS = 110


def flat(part, path=""):
    """The lines of a document: path and value of each part that fits into a line, or has no parts."""
    parts = dict(enumerate(part)) if isinstance(part, list) else part
    text = json.dumps(_rounded(part), ensure_ascii=False)
    is_whole = len(text) < LINE_CHARS or not isinstance(parts, dict)
    if is_whole or not any(isinstance(value, dict | list) for value in parts.values()):
        yield f"{path}: {text}"
        return
    for key, value in parts.items():
        yield from flat(value, f"{path}.{key}")


class Recorded:
    """Of documents, each with its path, the lines that none before it has, as a recorded file has them.

    The file names the paths of each section, and is written again as `record_files` describes.
    """

    def __init__(self, name):
        self._name, self._lines, self._seen, self._paths = name, [], set(), {}
        for line in (FIXTURES / name).read_text().splitlines():
            if not line.startswith(" "):
                self._paths[line] = paths = []
            elif line.startswith("  /"):
                paths.append(line.strip())

    def add(self, section, ask):
        """Ask for the paths of a section."""
        self._lines.append(f"{section}:")
        for path in self._paths[f"{section}:"]:
            new = [line for line in flat(ask(path)) if line not in self._seen]
            self._lines.extend([f"  {path}", *(f"    {line}" for line in new)])
            self._seen.update(new)

    def check(self):
        assert [line for line in self._lines if line[0] != " "] == [*self._paths]
        check(self._name, "\n".join([*self._lines, ""]))


def _rounded(part):
    """The last digits of a sum differ between versions of Python."""
    if isinstance(part, float):
        return float(f"{part:.10g}")
    if isinstance(part, dict):
        return {key: _rounded(value) for key, value in part.items()}
    return [*map(_rounded, part)] if isinstance(part, list) else part


def words(content):
    """The text that is placed."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return words(content["text"])
    return "".join(map(words, content))


def value(content):
    """The exact number of a content; None without one."""
    if isinstance(content, dict):
        return content.get("value", value(content.get("text", "")))
    if isinstance(content, str):
        return None
    return next((found for one in content if (found := value(one)) is not None), None)


def values(table, head):
    """The exact number in the column of a head, by the words of the first cell."""
    at = [name.strip("#~") for name in table["heads"]].index(head)
    return {words(row[0]): value(row[at]) for row in table["rows"]}
