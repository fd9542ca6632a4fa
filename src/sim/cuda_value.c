/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a value in memory, and lists of waits and writes. Contents move at the call and nothing
 * tells when they will: a value that is there is waited for at once, for any other the answer is
 * that the driver cannot. */
#include "sim/cuda_stream.h"

#define OPERATIONS_MAX 256

static CUresult value_read(CUdeviceptr address, unsigned bytes, uint64_t *ret_value)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = address,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = ret_value,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};

    *ret_value = 0;
    return allocation_find(address) && address % bytes == 0 ? copy_execute(&copy)
                                                            : CUDA_ERROR_INVALID_VALUE;
}

/* As the card compares: by the sign of the difference, so that counters may wrap. */
static bool value_holds(uint64_t found, uint64_t wanted, unsigned flags, unsigned bytes)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return bytes == 4 ? (int32_t)((uint32_t)found - (uint32_t)wanted) >= 0
                          : (int64_t)(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    default:
        return (bytes == 4 ? (uint32_t) ~(found | wanted) : ~(found | wanted)) != 0;
    }
}

static CUresult value_wait(
    CUstream handle, CUdeviceptr address, uint64_t wanted, unsigned flags, unsigned bytes)
{
    CUDA_LOCKED;
    struct stream *stream;
    uint64_t found;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && stream->capture)
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (r == CUDA_SUCCESS)
        r = value_read(address, bytes, &found);
    if (r == CUDA_SUCCESS && !value_holds(found, wanted, flags, bytes))
        r = CUDA_ERROR_NOT_SUPPORTED;
    return r;
}

CUresult sim_cuStreamWaitValue32_v2(
    CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 4);
}

CUresult sim_cuStreamWaitValue64_v2(
    CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 8);
}

static CUresult operation_run(CUstream stream, const CUstreamBatchMemOpParams *operation)
{
    const struct CUstreamMemOpWaitValueParams_st *wait = &operation->waitValue;
    const struct CUstreamMemOpWriteValueParams_st *write = &operation->writeValue;

    switch ((int)operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return value_wait(stream, wait->address, wait->value, wait->flags, 4);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return value_wait(stream, wait->address, wait->value64, wait->flags, 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return sim_cuStreamWriteValue32_v2(stream, write->address, write->value, write->flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return sim_cuStreamWriteValue64_v2(stream, write->address, write->value64, write->flags);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuStreamBatchMemOp_v2(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    CUresult r = CUDA_SUCCESS;

    if (!operations || count > OPERATIONS_MAX || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = operation_run(stream, &operations[i]);
    return r;
}
