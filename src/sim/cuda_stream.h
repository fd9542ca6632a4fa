/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, the work that goes onto them, captures and graphs. The machine tells at once when
 * work will be done, so a stream is little more than the time at which its last work ends.
 */
#ifndef VGPU_SIM_CUDA_STREAM_H
#define VGPU_SIM_CUDA_STREAM_H

#include "sim/cuda_sim.h"

/* Never: a kernel that does not end, and all that comes after it. */
#define TIME_NEVER UINT64_MAX

struct graph;
struct graph_exec;
struct graph_node;
struct event;

/* What a stream runs and a graph node holds. */
struct work {
    CUgraphNodeType type;
    union {
        struct {
            CUDA_KERNEL_NODE_PARAMS params;
            uint64_t duration_ns;
            uint64_t local_bytes;
        } kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        struct {
            struct device *device;
            uint64_t address;
            uint64_t bytes;
        } memory;
        struct graph *child;
        struct event *event;
    };
};

/* Nodes that the next captured work of a stream depends on. */
struct node_list {
    struct graph_node **nodes;
    size_t count;
};

struct capture {
    struct capture *next;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    struct graph *graph;
    bool own_graph; /* not the program's, as with cuStreamBeginCaptureToGraph */
    struct stream *origin;
    struct stream *members; /* all streams that are part of it, also of other contexts */
    const void *thread;
    unsigned long long id;
};

struct stream {
    struct object object;
    struct stream *next;
    struct context *context;
    unsigned flags;
    int priority;
    unsigned long long id;
    uint64_t end_ns;
    struct capture *capture;
    struct stream *next_member;
    struct node_list tail;
    _Atomic unsigned long long host_issued;
    _Atomic unsigned long long host_done;
};

/* The stream that a handle means to this call: 0, 1 and 2 are values, see cuda_entry_per_thread().
 */
CUresult stream_get(CUstream handle, struct stream **ret_stream);
/* As stream_get for who only asks: the capture that the legacy stream conflicts with goes on. */
CUresult stream_look(CUstream handle, struct stream **ret_stream);
uint64_t stream_begin_ns(const struct stream *stream);
/* Puts the work on the stream, or into the capture that it is part of. */
CUresult stream_run(struct stream *stream, const struct work *work);
/* Waits without the lock; the stream may be gone when it returns. */
CUresult stream_wait(struct stream *stream);
bool stream_done(const struct stream *stream);

/* Runs work to begin at begin_ns, never captured; *ret_end_ns is when it will be done. */
CUresult work_run(
    struct stream *stream, const struct work *work, uint64_t begin_ns, uint64_t *ret_end_ns);
uint64_t time_now(void);
void time_wait(uint64_t until_ns);

/* Has fn(data) called by a thread of the simulator at that time. */
CUresult host_function_add(struct stream *stream, uint64_t at_ns, CUhostFn fn, void *data);
void host_function_wait(struct stream *stream, unsigned long long issued);

/* ---- captures ---- */
CUresult capture_work(struct stream *stream, const struct work *work);
CUresult capture_allocation(
    struct stream *stream, uint64_t bytes, struct device *device, CUdeviceptr *ret_address);
CUresult capture_free(struct stream *stream, uint64_t address);
/* The stream's work from now on depends on these nodes too, and is part of the capture. */
CUresult capture_join(struct stream *stream, struct capture *capture, const struct node_list *on);
void capture_invalidate(struct capture *capture);
/* A stream dies: its capture, if it began one, is over. */
void capture_stream_gone(struct stream *stream);
/* Would work on the legacy stream depend on a capturing blocking stream? `spoil`: it is being put
 * there, which is the end of those captures. */
bool capture_blocks_legacy(const struct context *context, bool spoil);
/* Is any stream of the context capturing? Waiting for the context spoils those captures. */
bool capture_spoil_context(const struct context *context);
struct capture *capture_live(unsigned long long id);
CUresult node_list_add(struct node_list *list, const struct node_list *more);
void node_list_finish(struct node_list *list);

/* ---- graphs ---- */
struct graph_node {
    struct object object;
    struct graph_node *next;
    struct graph *graph;
    struct work work;
    struct node_list deps;
    const struct graph_node *original; /* of an executable graph's node; may be gone */
    bool disabled;
    size_t place; /* scratch: in topological order, or of the copy */
    uint64_t end_ns;
};

struct graph {
    struct object object;
    struct graph_node *nodes; /* in the order of their creation */
    struct graph_node **last;
    size_t count;
    bool memory;              /* has nodes that allocate or free */
    bool owned;               /* a child that was moved into its parent */
    struct graph_exec *alone; /* of a graph with memory nodes: its one live executable graph */
    uint64_t end_ns;          /* of an executable graph: when its last launch will be done */
};

struct graph *graph_create(void);
void graph_destroy(struct graph *graph);
CUresult graph_add(struct graph *graph, const struct work *work, const struct node_list *deps,
    struct graph_node **ret_node);
CUresult graph_copy(const struct graph *graph, struct graph **ret_copy);
CUresult graph_run(
    struct graph *graph, struct stream *stream, uint64_t begin_ns, uint64_t *ret_end_ns);
/* From handles, each of which must be a live node of the graph. */
CUresult graph_deps(const struct graph *graph, const CUgraphNode *handles, size_t count,
    struct node_list *ret_list);

void graph_exec_orphan(struct graph_exec *exec);

/* ---- graph memory: addresses are fixed with the node, memory is taken at the launch ---- */
/* A node's address; 0 where there is none left. */
uint64_t graph_address_take(const struct graph *graph, uint64_t bytes);
/* A node of the graph is to free it: allowed once in the graph that allocates it. */
bool graph_address_may_free(const struct graph *graph, uint64_t address);
/* Makes what a launch on the stream will need ready: all or nothing. */
CUresult graph_memory_prepare(struct graph *graph, struct stream *stream, uint64_t begin_ns);
/* Does an earlier launch's memory live on that the graph itself allocates? */
bool graph_memory_left(const struct graph *graph);
void graph_memory_free_left(const struct graph *graph, uint64_t at_ns);
CUresult graph_memory_take(struct context *context, const struct work *work, uint64_t begin_ns);
/* at_ns: from when on the memory is free to use. */
CUresult graph_memory_free(uint64_t address, uint64_t at_ns);
void graph_memory_release(struct allocation *allocation);
void graph_memory_trim(struct device *device);
uint64_t graph_memory_used(const struct device *device);
bool graph_node_follows(const struct graph_node *node, const struct graph_node *before);

/* ---- copies and fills ---- */
CUresult copy_execute(const CUDA_MEMCPY3D *copy);
CUresult fill_execute(const CUDA_MEMSET_NODE_PARAMS *fill);
uint64_t copy_duration_ns(const CUDA_MEMCPY3D *copy);

#endif
