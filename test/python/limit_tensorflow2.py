# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 2 under a memory limit: ResourceExhaustedError at the limit, and it goes on (limit.py)."""
import limit


def load(device):
    import tensorflow  # pylint: disable=import-outside-toplevel,import-error
    if not hasattr(tensorflow, "config"):
        raise limit.Missing(f"TensorFlow {tensorflow.__version__} is not TensorFlow 2")
    devices = tensorflow.config.list_physical_devices("GPU")
    if device >= len(devices):
        raise limit.Missing(f"TensorFlow {tensorflow.__version__} sees no GPU {device}")
    for each in devices:  # else it takes all memory at once
        tensorflow.config.experimental.set_memory_growth(each, True)

    def ones(shape, where):
        with tensorflow.device(f"/GPU:{where}"):
            return float(tensorflow.reduce_sum(tensorflow.ones(shape, dtype=tensorflow.float32)).numpy())

    return f"TensorFlow {tensorflow.__version__}", ones, tensorflow.errors.ResourceExhaustedError


limit.main(load)
