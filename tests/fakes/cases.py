"""A table of cases in one test."""


def check_all(check, cases):
    """Call `check` with each case, and report all failures together.

    Args:
        check: A function with assertions.
        cases: Its arguments: a tuple each, or a single value.
    """
    failures = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        try:
            check(*arguments)
        except AssertionError as error:
            failures.append(f"{arguments}: {error}")
    assert not failures, "\n".join(failures)
