"""Controlled inferences on the device under test; needs only torch and the standard library.

Answers: what a pass of a model takes, in a steady window with known edges, by which software.
Reads: requests on standard input, as JSON lines; the model, its weights and inputs.
Writes: reports on standard output, as JSON lines; nothing else.

It runs under the interpreter of the serving stack, so it supports Python 3.9. Open `worker`
first, then `model_run`: one run, from the batch to its steady window. `wire`, `stats` and `processor`
import no torch: the agent uses them, and the table of model sources.
"""
