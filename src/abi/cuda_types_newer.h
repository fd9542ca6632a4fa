/* SPDX-License-Identifier: Apache-2.0 */
/* Types that CUDA 13.1 to 13.5 brought, as far as functions that are replaced need them. A toolkit
 * that cuda_api.h is compiled after may have some of them. Sizes: cuda.h of CUDA 13.5. */
#ifndef VGPU_ABI_CUDA_TYPES_NEWER_H
#define VGPU_ABI_CUDA_TYPES_NEWER_H

#ifdef __cuda_cuda_h__
#define ABI_LACKS(version) (CUDA_VERSION < (version))
#else
#define ABI_LACKS(version) 1
#endif

#if ABI_LACKS(13010)
typedef enum CUstreamCigDataType_enum {
    STREAM_CIG_DATA_TYPE_D3D12_COMMAND_LIST = 1,
    STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV = 2,
} CUstreamCigDataType;

typedef struct CUstreamCigParam_st {
    CUstreamCigDataType streamSharedDataType;
    void *streamSharedData;
} CUstreamCigParam;

typedef struct CUstreamCigCaptureParams_st {
    CUstreamCigParam *streamCigParams;
} CUstreamCigCaptureParams;
#endif

#if ABI_LACKS(13030)
typedef enum CUgraphRecaptureStatus_enum {
    CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE = 0,
    CU_GRAPH_RECAPTURE_INELIGIBLE_FOR_UPDATE = 1,
    CU_GRAPH_RECAPTURE_ERROR = 2,
} CUgraphRecaptureStatus;

typedef CUresult (*CUgraphRecaptureCallback)(void *data, CUgraphNode node,
    const CUgraphNodeParams *originalParams, const CUgraphNodeParams *recaptureParams,
    CUgraphRecaptureStatus status);
#endif

#if ABI_LACKS(13050)
typedef cuuint32_t CUlogicalEndpointId;

typedef enum CUfabricCpyOperandType_enum {
    CU_FABRIC_COPY_OPERAND_TYPE_POINTER = 1,
    CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT = 2,
    CU_FABRIC_COPY_OPERAND_TYPE_MAX = 0x7fffffff,
} CUfabricCpyOperandType;

typedef struct CUfabricCpyOperand_st {
    CUfabricCpyOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUlogicalEndpointId id;
            cuuint64_t offset;
        } le;
    } op;
} CUfabricCpyOperand;

typedef struct CUDA_FABRIC_COPY_BATCH_OP_st {
    CUfabricCpyOperand src;
    CUfabricCpyOperand dst;
    size_t size;
    unsigned int flags;
} CUDA_FABRIC_COPY_BATCH_OP;
#endif

_Static_assert(sizeof(CUfabricCpyOperand) == 24, "operand of a copy over a fabric");
_Static_assert(sizeof(CUDA_FABRIC_COPY_BATCH_OP) == 64, "copy over a fabric");
_Static_assert(sizeof(CUstreamCigParam) == 16, "capture into a command list");

#undef ABI_LACKS

#endif
