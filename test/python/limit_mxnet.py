# SPDX-License-Identifier: Apache-2.0
"""MXNet under a memory limit: MXNetError at the limit, and it goes on (limit.py)."""
import limit


def load(device):
    import mxnet  # pylint: disable=import-outside-toplevel,import-error
    if device >= mxnet.context.num_gpus():
        raise limit.Missing(f"MXNet {mxnet.__version__} sees no GPU {device}")

    def ones(shape, where):
        tensor = mxnet.nd.ones(shape, ctx=mxnet.gpu(where), dtype="float32")
        tensor.wait_to_read()  # errors come here
        return float(tensor.sum().asscalar())

    return f"MXNet {mxnet.__version__}", ones, mxnet.base.MXNetError


limit.main(load)
