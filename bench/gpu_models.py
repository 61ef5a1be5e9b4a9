"""The probe of the end-to-end step: matrix products on a GPU, a sleep on the CPU; slower on request."""

import os
import time
from pathlib import Path

import torch
from torch import nn

# At a batch of 1,024 and bf16 about a millisecond: the device's time, not the launches'.
WIDTH, PRODUCTS = 8192, 6
CHECKED_EVERY_S = 0.2


class Work(nn.Module):
    """Work that grows by a third while the file named by SLOW_FLAG exists."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.checked_s, self.is_slow = 0.0, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input after the products."""
        if time.monotonic() - self.checked_s > CHECKED_EVERY_S:
            self.checked_s = time.monotonic()
            self.is_slow = Path(os.environ["SLOW_FLAG"]).exists()
        if not x.is_cuda:
            time.sleep(0.004 if self.is_slow else 0.003)
            return x
        for _ in range(PRODUCTS + (PRODUCTS // 3 if self.is_slow else 0)):
            x = nn.functional.linear(x, self.weight)
        return x


def work() -> tuple[nn.Module, torch.Tensor]:
    """Return the model and one input."""
    width = WIDTH if torch.cuda.is_available() else 1
    return Work(width), torch.randn(1, width)
