# SPDX-License-Identifier: Apache-2.0
"""PyTorch under a memory limit: torch.OutOfMemoryError at the limit, and it goes on (limit.py)."""
import limit


def load(device):
    import torch  # pylint: disable=import-outside-toplevel,import-error
    if device >= torch.cuda.device_count():
        raise limit.Missing(f"PyTorch {torch.__version__} sees no CUDA device {device}")

    def ones(shape, where):
        return float(torch.ones(shape, dtype=torch.float32, device=f"cuda:{where}").sum().item())

    # Of PyTorch 1.13 on; before, any RuntimeError.
    return f"PyTorch {torch.__version__}", ones, getattr(torch.cuda, "OutOfMemoryError", RuntimeError)


limit.main(load)
