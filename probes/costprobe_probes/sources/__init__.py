"""Model sources: where the model of a probe comes from, one file for each source.

No source downloads anything, and weights are read as tensors: no other object is unpickled from
them. A file with a program (torchscript, pt2) is trusted in the same way as an operator's factory.
"""
