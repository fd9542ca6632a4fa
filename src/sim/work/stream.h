/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, the work that goes onto them, captures and graphs. The work lies in the machine, where
 * it is done as time passes; a stream holds the ticket of its last.
 */
#ifndef VGPU_SIM_WORK_STREAM_H
#define VGPU_SIM_WORK_STREAM_H

#include "sim/cuda/cuda_sim.h"

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
            uint64_t meeting;
            uint32_t parties; /* 0: it meets none */
            uint64_t touched_at, touched_bytes;
            uint64_t read_at, read_bytes;
            uint64_t local_bytes;
        } kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        struct {
            struct device *device; /* NULL: the location is none */
            uint64_t address;
            uint64_t bytes;
            enum memory_place place;
            CUmemAllocationType type;
            CUmemLocation location;
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
    struct context *green; /* NULL: of none; dead: calls with it fail */
    unsigned flags;
    int priority;
    bool gone; /* destroyed: only what it has to do is left */
    unsigned long long id;
    struct sim_queue queue;
    struct sim_ticket joined;    /* of the legacy stream, for which this one waits already */
    struct sim_ticket joined_by; /* of this one, for which the legacy stream waits already */
    bool list;                   /* captures into a command list: what is put on it goes nowhere */
    struct capture *capture;
    struct stream *next_member;
    struct node_list tail;
    _Atomic unsigned long long host_issued;
    _Atomic unsigned long long host_done;
    unsigned long long host_round; /* under the host functions' lock: looked at, not ready */
};

/* NULL where there is no memory. `green`: NULL or a green context of `context`. */
struct stream *stream_create(
    struct context *context, struct context *green, unsigned flags, int priority);
/* What was put on it is still done. */
void stream_destroy(struct stream *stream);
/* The default stream that it goes with; may be itself. */
struct stream *stream_default(const struct stream *stream);
/* The stream that a handle means to this call: 0, 1 and 2 are values, see cuda_entry_per_thread().
 */
CUresult stream_get(CUstream handle, struct stream **ret_stream);
bool stream_done(const struct stream *stream);
/* The stream of a handle that is not 0, 1 or 2. */
CUresult stream_named(CUstream handle, struct stream **ret_stream);
/* As stream_get for a query: the capture that the legacy stream conflicts with goes on. */
CUresult stream_look(CUstream handle, struct stream **ret_stream);
/* Blocks, without the lock, while the stream has more to do than a driver's queue holds.
 * Before anything else in a call with a stream's handle. */
void stream_admit(CUstream handle);
/* What the next work on the stream comes after; the stream waits for other streams as it must. */
struct sim_ticket stream_here(struct stream *stream);
/* Appends to the stream, which is joined already. */
void stream_append(struct stream *stream, const struct sim_work *work);
void stream_append_after(struct stream *stream, const struct sim_ticket *ticket);
/* Puts the work on the stream, or into the capture that it is part of. */
CUresult stream_run(struct stream *stream, const struct work *work);
/* Waits without the lock; the stream may be gone when it returns. */
CUresult stream_wait(struct stream *stream);

/* Runs work, never captured, after what the stream has. */
CUresult work_run(struct stream *stream, const struct work *work);
void stream_sleep_until(uint64_t until_ns);

/* Has fn(data) called by a thread of the simulator once what the stream has is done. */
CUresult host_function_add(struct stream *stream, CUhostFn fn, void *data);
void host_function_wait(struct stream *stream, unsigned long long issued);

/* ---- waits for values in memory, and writes of them (value_queue.c) ---- */
struct value_op {
    uint64_t address; /* as the program knows it */
    void *host;       /* where its bytes are */
    uint64_t value;
    unsigned flags; /* of a wait: CUstreamWaitValue_flags */
    unsigned bytes; /* 4 or 8 */
    bool write;
};
/* Is it a write, or does the value there end the wait? A write is done by asking. */
bool value_queue_is_done(const struct value_op *op);
/* Puts it onto the stream, which is joined already, to be done by a thread of the simulator. */
CUresult value_queue_add(struct stream *stream, const struct value_op *op);
/* Something was written into memory: waits for values look now. */
void value_queue_memory_changed(void);
/* The memory is going: no wait for it and no write to it is left. */
void value_queue_forget(uint64_t address, uint64_t bytes);

/* ---- captures ---- */
CUresult capture_work(struct stream *stream, const struct work *work);
/* With the pool's properties, "owned by the graph instead of the memory pool". */
CUresult capture_allocation(
    struct stream *stream, uint64_t bytes, const struct pool *pool, CUdeviceptr *ret_address);
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
};

struct graph {
    struct object object;
    struct graph_node *nodes; /* in the order of their creation */
    struct graph_node **last;
    size_t count;
    bool memory;                /* has nodes that allocate or free */
    bool owned;                 /* a child that was moved into its parent */
    struct graph_exec *alone;   /* of a graph with memory nodes: its one live executable graph */
    struct sim_ticket launched; /* of an executable graph: its last launch */
};

struct graph *graph_create(void);
void graph_destroy(struct graph *graph);
CUresult graph_add(struct graph *graph, const struct work *work, const struct node_list *deps,
    struct graph_node **ret_node);
CUresult graph_copy(const struct graph *graph, struct graph **ret_copy);
CUresult graph_run(struct graph *graph, struct stream *stream);
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
CUresult graph_memory_prepare(struct graph *graph, struct stream *stream);
/* Does an earlier launch's memory live on that the graph itself allocates? */
bool graph_memory_left(const struct graph *graph);
void graph_memory_free_left(const struct graph *graph, const struct sim_ticket *after);
CUresult graph_memory_take(struct stream *stream, const struct work *work);
/* after: when that is done the memory is free to use. */
CUresult graph_memory_free(uint64_t address, const struct sim_ticket *after);
void graph_memory_release(struct allocation *allocation);
void graph_memory_trim(struct device *device);
uint64_t graph_memory_used(const struct device *device);
bool graph_node_follows(const struct graph_node *node, const struct graph_node *before);

/* ---- copies and fills ---- */
CUresult copy_execute(const CUDA_MEMCPY3D *copy);
CUresult fill_execute(const CUDA_MEMSET_NODE_PARAMS *fill);
/* What they have the machine do: on the card they take the compute engine, as kernels do. */
struct sim_work copy_work(const CUDA_MEMCPY3D *copy);
struct sim_work fill_work(const CUDA_MEMSET_NODE_PARAMS *fill);

#endif
