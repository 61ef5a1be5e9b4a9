"""What the server formatted, read back: the words of a content, the exact numbers in it, and rows of a table."""


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


def rows(table):
    """The rows of a table by the words of their first cell, each as words by head."""
    heads = [head.strip("#~") for head in table["heads"]]
    return {words(row[0]): dict(zip(heads, map(words, row), strict=True)) for row in table["rows"]}


def values(table, head):
    """The exact number in the column of a head, by the words of the first cell."""
    at = [name.strip("#~") for name in table["heads"]].index(head)
    return {words(row[0]): value(row[at]) for row in table["rows"]}
