"""Collection of all tests takes a few seconds, so that a single test starts quickly, too."""


def test_collection_imports_no_heavy_package(loaded_by_collection):
    # Import it in the test, or through fakes.lazy.LazyModule.
    assert loaded_by_collection == set()
