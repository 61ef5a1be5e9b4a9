"""A model for MLServer: it doubles its input after a while, and fails with a negative one."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

SLOW_S = 0.01


class Tiny(MLModel):
    """The model."""

    async def load(self):
        """Load nothing."""
        return True

    async def predict(self, payload):
        """Answer after a while."""
        values = NumpyCodec.decode_input(payload.inputs[0])
        await asyncio.sleep(SLOW_S)
        if values.min() < 0:
            raise RuntimeError("made to fail")
        outputs = [NumpyCodec.encode_output("y", values * 2)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
