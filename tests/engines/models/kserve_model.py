"""A model server with KServe: it doubles its input after a while, and fails with a negative one."""

import asyncio

import kserve

SLOW_S = 0.01


class Tiny(kserve.Model):
    """The model."""

    def __init__(self):
        super().__init__("tiny")
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):  # noqa: ARG002 - its caller's names
        """Answer after a while."""
        values = payload.inputs[0].as_numpy()
        await asyncio.sleep(SLOW_S)
        if values.min() < 0:
            raise RuntimeError("made to fail")
        output = kserve.InferOutput("y", list(values.shape), "FP32")
        output.set_data_from_numpy(values * 2, binary_data=False)
        return kserve.InferResponse("1", self.name, [output])


if __name__ == "__main__":
    kserve.ModelServer().start([Tiny()])
