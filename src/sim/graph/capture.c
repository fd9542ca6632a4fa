/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: beginning, joining, ending, and which calls a capture forbids. */
#include <stdlib.h>
#include <string.h>

#include "sim/memory/pool.h"
#include "sim/work/stream.h"

/* Flag of cuStreamUpdateCaptureDependencies: in place of the present ones, not added. */
#define SET_DEPENDENCIES 1

static struct capture *captures;
static unsigned long long next_id = 1;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Its address names the thread. */
static const void *thread_self(void)
{
    return &thread_mode;
}

struct capture *capture_live(unsigned long long id)
{
    struct capture *capture = captures;

    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

void capture_invalidate(struct capture *capture)
{
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

/* As the documentation of cuThreadExchangeStreamCaptureMode says. */
bool capture_forbids(void)
{
    CUDA_LOCKED;
    bool forbidden = false;

    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    for (struct capture *capture = captures; capture; capture = capture->next) {
        bool own =
            capture->thread == thread_self() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (!own && !global)
            continue;
        capture_invalidate(capture);
        forbidden = true;
    }
    return forbidden;
}

static bool capture_any(const struct context *context, bool blocking_only, bool spoil)
{
    bool any = false;

    for (const struct stream *stream = context->streams; stream; stream = stream->next) {
        if (!stream->capture || (blocking_only && (stream->flags & CU_STREAM_NON_BLOCKING)))
            continue;
        if (spoil)
            capture_invalidate(stream->capture);
        any = true;
    }
    return any;
}

bool capture_blocks_legacy(const struct context *context, bool spoil)
{
    return capture_any(context, true, spoil);
}

bool capture_spoil_context(const struct context *context)
{
    return capture_any(context, false, true);
}

static CUresult capture_node(
    struct stream *stream, const struct work *work, struct graph_node **ret_node)
{
    CUresult r;

    if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    r = graph_add(stream->capture->graph, work, &stream->tail, ret_node);
    if (r != CUDA_SUCCESS)
        return r;
    stream->tail.count = 0;
    return node_list_add(&stream->tail, &(struct node_list){ret_node, 1});
}

CUresult capture_work(struct stream *stream, const struct work *work)
{
    struct graph_node *node;

    return capture_node(stream, work, &node);
}

CUresult capture_allocation(
    struct stream *stream, uint64_t bytes, const struct pool *pool, CUdeviceptr *ret_address)
{
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .memory = {.device = pool->device,
            .bytes = bytes,
            .place = pool->place,
            .type = pool->type,
            .location = pool->location}};
    struct graph_node *node;
    CUresult r = capture_node(stream, &work, &node);

    if (r == CUDA_SUCCESS)
        *ret_address = node->work.memory.address;
    return r;
}

CUresult capture_free(struct stream *stream, uint64_t address)
{
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE,
        .memory = {.device = stream->context->device, .address = address}};

    if (stream->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
        !graph_address_may_free(stream->capture->graph, address))
        return CUDA_ERROR_INVALID_VALUE;
    return capture_work(stream, &work);
}

static void capture_add(struct capture *capture, struct stream *stream)
{
    stream->capture = capture;
    stream->next_member = capture->members;
    capture->members = stream;
}

CUresult capture_join(struct stream *stream, struct capture *capture, const struct node_list *on)
{
    if (stream->capture && stream->capture != capture) {
        capture_invalidate(stream->capture);
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!stream->capture)
        capture_add(capture, stream);
    return node_list_add(&stream->tail, on);
}

/* Takes every stream out of the capture and forgets it; the graph stays. */
static void capture_finish(struct capture *capture)
{
    struct capture **at = &captures;

    for (struct stream *stream = capture->members; stream; stream = stream->next_member) {
        stream->capture = NULL;
        node_list_finish(&stream->tail);
    }
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    free(capture);
}

void capture_stream_gone(struct stream *stream)
{
    struct capture *capture = stream->capture;

    if (!capture)
        return;
    if (capture->origin != stream) {
        struct stream **at = &capture->members;

        while (*at != stream)
            at = &(*at)->next_member;
        *at = stream->next_member;
        stream->capture = NULL;
        capture_invalidate(capture);
        return;
    }
    if (capture->own_graph)
        graph_destroy(capture->graph);
    capture_finish(capture);
}

static CUresult capture_begin(
    CUstream handle, struct graph *graph, const struct node_list *on, CUstreamCaptureMode mode)
{
    struct stream *stream;
    struct capture *capture;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream_default(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *capture = (struct capture){.next = captures,
        .mode = mode,
        .status = CU_STREAM_CAPTURE_STATUS_ACTIVE,
        .graph = graph ? graph : graph_create(),
        .own_graph = !graph,
        .origin = stream,
        .thread = thread_self(),
        .id = next_id++};
    if (!capture->graph || (on && node_list_add(&stream->tail, on) != CUDA_SUCCESS)) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    captures = capture;
    capture_add(capture, stream);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    CUDA_LOCKED;

    return capture_begin(handle, NULL, NULL, mode);
}

CUresult sim_cuStreamBeginCapture(CUstream handle)
{
    return sim_cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
    const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    CUDA_LOCKED;
    struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct node_list on = {0};
    CUresult r;

    (void)edges;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    r = graph_deps(graph, nodes, count, &on);
    if (r == CUDA_SUCCESS)
        r = capture_begin(handle, graph, &on, mode);
    node_list_finish(&on);
    return r;
}

/* All that other streams captured must lie before what the origin waits for. */
static bool capture_joined(const struct capture *capture)
{
    const struct stream *origin = capture->origin;

    for (const struct stream *stream = capture->members; stream; stream = stream->next_member) {
        if (stream == origin)
            continue;
        for (size_t i = 0; i < stream->tail.count; i++) {
            bool joined = false;

            for (size_t j = 0; j < origin->tail.count && !joined; j++)
                joined = graph_node_follows(origin->tail.nodes[j], stream->tail.nodes[i]);
            if (!joined)
                return false;
        }
    }
    return true;
}

static CUresult capture_end_check(const struct stream *stream, struct capture *capture)
{
    if (capture->origin != stream) {
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_self())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamEndCapture(CUstream handle, CUgraph *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    struct capture *capture;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    capture = stream->capture;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    r = capture_end_check(stream, capture);
    if (r != CUDA_SUCCESS)
        return r;
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!capture_joined(capture))
        r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *ret = r == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
    if (r != CUDA_SUCCESS && capture->own_graph)
        graph_destroy(capture->graph);
    capture_finish(capture);
    return r;
}

static CUresult capture_info(
    CUstream handle, CUstreamCaptureStatus *status, const struct stream **ret_stream)
{
    struct stream *stream;
    CUresult r = stream_look(handle, &stream);

    if (r == CUDA_SUCCESS && !status)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    *status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUDA_LOCKED;
    const struct stream *stream;

    return capture_info(handle, status, &stream);
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
    cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    CUDA_LOCKED;
    const struct stream *stream;
    CUresult r = capture_info(handle, status, &stream);

    if (r != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return r;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = (CUgraph)stream->capture->graph;
    if (nodes)
        *nodes = (const CUgraphNode *)stream->tail.nodes;
    if (count)
        *count = stream->tail.count;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status,
    cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges,
    size_t *count)
{
    if (edges)
        *edges = NULL;
    return sim_cuStreamGetCaptureInfo_v2(handle, status, id, graph, nodes, count);
}

CUresult sim_cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return sim_cuStreamGetCaptureInfo_v2(handle, status, id, NULL, NULL, NULL);
}

CUresult sim_cuStreamUpdateCaptureDependencies(
    CUstream handle, CUgraphNode *nodes, size_t count, unsigned int flags)
{
    CUDA_LOCKED;
    struct stream *stream;
    struct node_list on = {0};
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    r = graph_deps(stream->capture->graph, nodes, count, &on);
    if (r == CUDA_SUCCESS && flags == SET_DEPENDENCIES)
        stream->tail.count = 0;
    if (r == CUDA_SUCCESS)
        r = node_list_add(&stream->tail, &on);
    node_list_finish(&on);
    return r;
}

CUresult sim_cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, unsigned int flags)
{
    (void)edges;
    return sim_cuStreamUpdateCaptureDependencies(handle, nodes, count, flags);
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;

    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
