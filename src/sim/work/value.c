/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that wait for values in memory and write them, one by one and in lists. Both versions
 * of each do the same. */
#include "sim/work/stream.h"

#define OPERATIONS_MAX 256
#define WAIT_FLAGS (CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH)

static CUresult value_locate(CUdeviceptr address, unsigned bytes, void **ret_host)
{
    char *host;
    CUresult r;

    if (!allocation_find(address) || address % bytes)
        return CUDA_ERROR_INVALID_VALUE;
    r = contents_of(address, bytes, &host);
    if (r == CUDA_SUCCESS && !host)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        *ret_host = host;
    return r;
}

/* What can be done at once needs no thread. */
static CUresult value_run(CUstream handle, struct value_op *op)
{
    stream_admit(handle);
    CUDA_LOCKED;
    struct stream *stream;
    struct sim_ticket here;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && stream->capture)
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (r == CUDA_SUCCESS)
        r = value_locate(op->address, op->bytes, &op->host);
    if (r != CUDA_SUCCESS)
        return r;
    here = stream_here(stream);
    if (sim_ticket_done(&here, NULL) && value_queue_is_done(op)) {
        value_queue_memory_changed();
        return CUDA_SUCCESS;
    }
    return value_queue_add(stream, op);
}

static CUresult value_wait(
    CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, unsigned bytes)
{
    struct value_op op = {.address = address, .value = value, .flags = flags, .bytes = bytes};

    return flags & ~(unsigned)WAIT_FLAGS ? CUDA_ERROR_INVALID_VALUE : value_run(stream, &op);
}

static CUresult value_write(
    CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, unsigned bytes)
{
    struct value_op op = {.address = address, .value = value, .bytes = bytes, .write = true};

    return flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ? CUDA_ERROR_INVALID_VALUE
                                                                      : value_run(stream, &op);
}

CUresult sim_cuStreamWaitValue32_v2(
    CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 4);
}

CUresult sim_cuStreamWaitValue32(
    CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 4);
}

CUresult sim_cuStreamWaitValue64_v2(
    CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 8);
}

CUresult sim_cuStreamWaitValue64(
    CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return value_wait(stream, address, value, flags, 8);
}

CUresult sim_cuStreamWriteValue32_v2(
    CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return value_write(stream, address, value, flags, 4);
}

CUresult sim_cuStreamWriteValue32(
    CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return value_write(stream, address, value, flags, 4);
}

CUresult sim_cuStreamWriteValue64_v2(
    CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return value_write(stream, address, value, flags, 8);
}

CUresult sim_cuStreamWriteValue64(
    CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return value_write(stream, address, value, flags, 8);
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
        return value_write(stream, write->address, write->value, write->flags, 4);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return value_write(stream, write->address, write->value64, write->flags, 8);
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

CUresult sim_cuStreamBatchMemOp(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    return sim_cuStreamBatchMemOp_v2(stream, count, operations, flags);
}
