"""A model for Triton's python backend: it doubles its input after a while, and fails with a negative one."""

import time

import triton_python_backend_utils as pb_utils

SLOW_S = 0.01
DIES_BELOW = -5.0


class TritonPythonModel:
    """The model."""

    def execute(self, requests):
        """Answer each request of a batch; a very low input fails the whole execution."""
        time.sleep(SLOW_S)
        return [self._answer(request) for request in requests]

    @staticmethod
    def _answer(request):
        values = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        if values.min() < DIES_BELOW:
            raise RuntimeError("made to fail")
        if values.min() < 0:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("made to fail"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", values * 2)])
