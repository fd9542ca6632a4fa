# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 1, or 2 by its interface of old, under a memory limit: ResourceExhaustedError at the
limit, and it goes on (limit.py)."""
import limit


def load(device):
    import tensorflow  # pylint: disable=import-outside-toplevel,import-error
    version = tensorflow.__version__
    old = tensorflow if version.startswith("1.") else tensorflow.compat.v1
    if not version.startswith("1."):
        old.disable_eager_execution()
    options = old.ConfigProto(gpu_options=old.GPUOptions(allow_growth=True))
    session = old.Session(config=options)
    names = [each.name for each in session.list_devices()]
    if not any(name.endswith(f"GPU:{device}") for name in names):
        raise limit.Missing(f"TensorFlow {version} sees no GPU {device}")

    def ones(shape, where):
        with old.device(f"/gpu:{where}"):
            return float(session.run(old.reduce_sum(old.fill(shape, old.placeholder_with_default(1.0, [])))))

    return f"TensorFlow {version}", ones, old.errors.ResourceExhaustedError


limit.main(load)
