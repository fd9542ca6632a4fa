/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu top knows: the newest look at all containers, what it was in the looks before, and
 * which of it is to be shown in what order. Knows no terminal, and takes time from what it is
 * given. Not for several threads at a time. */
#ifndef VGPU_TOP_MODEL_H
#define VGPU_TOP_MODEL_H

#include "collect/collect.h"

#define TOP_SAMPLES 600      /* looks that are remembered */
#define TOP_FORGET 60        /* looks after which one that is gone is forgotten */
#define TOP_FILTER_BYTES 128 /* of the filter's text, its end included */

/* One value a look: the newest, and those before it. */
struct top_history {
    uint64_t newest;           /* number of the look */
    float gpu[TOP_SAMPLES];    /* percent; below 0: not known */
    float memory[TOP_SAMPLES]; /* bytes; likewise */
};

/* A container, a process of it (pid not 0), or one device of either. */
struct top_key {
    dev_t file_device;
    ino_t file_inode;
    uint64_t namespace; /* of pid */
    int pid;            /* as the process knows itself */
    unsigned device;
};

/* A container on a device. */
struct top_track {
    struct top_key key;
    struct top_history *history;
    bool folded; /* of device 0's: the container's processes are not shown */
};

/* A process on a device. */
struct top_work {
    struct top_key key;
    uint64_t gpu_time_ns, read_ns;
    double share; /* percent of the GPU's time since the look before; COLLECT_UNKNOWN */
};

/* A GPU, by its UUID: all that its containers have. */
struct top_gpu {
    char uuid[48];
    struct top_history *history;
    uint64_t seen;         /* number of the look */
    double share;          /* COLLECT_UNKNOWN where it is not measured */
    uint64_t memory_bytes; /* held */
    uint64_t physical_bytes;
    unsigned containers;
};

enum top_sort {
    TOP_BY_GPU,
    TOP_BY_MINUTE,
    TOP_BY_MEMORY,
    TOP_BY_PRIORITY,
    TOP_BY_PROCESSES,
    TOP_BY_NAME,
    TOP_SORTS
};

/* A line of the table: a container on a device, or a process on one. */
struct top_row {
    const struct collected_container *container; /* in `now` */
    const struct collected_process *process;     /* NULL: of the container */
    unsigned device;
    bool first; /* of its container or process: with the name */
};

struct top_model {
    struct collection now; /* owned */
    uint64_t looks;        /* taken so far */
    uint64_t span_ns;      /* between the newest two; 0 before */
    uint64_t taken_ns;     /* CLOCK_MONOTONIC */
    struct top_track *tracks;
    size_t track_count; /* by key */
    struct top_work *works;
    size_t work_count; /* by key */
    struct top_gpu *gpus;
    size_t gpu_count; /* by UUID */
    struct top_row *rows;
    size_t row_count;
    enum top_sort sort;
    bool reverse, hide_processes;
    char filter[TOP_FILTER_BYTES];
    bool follows;    /* the selection stays with its row, else on the first line */
    size_t selected; /* a row, where there is one */
    struct top_key selected_key;
};

/* Zeros are a model without a look. Frees all that it holds. */
void top_model_finish(struct top_model *model);

/* Takes the next look over, which it frees later, at `now_ns`; makes the rows anew. Returns 0, or
 * -ENOMEM with the look freed, or shown by no rows. */
int top_model_take(struct top_model *model, struct collection *look, uint64_t now_ns)
    __attribute__((warn_unused_result));

/* The value `age` looks before the newest; below 0 where it is not known. */
float top_history_gpu(
    const struct top_model *model, const struct top_history *history, unsigned age);
float top_history_memory(
    const struct top_model *model, const struct top_history *history, unsigned age);

/* Of a container's device; NULL for one that was never looked at. */
struct top_track *top_model_track(
    const struct top_model *model, const struct collected_container *container, unsigned device);

/* Share of a process on a device since the look before; COLLECT_UNKNOWN. */
double top_model_share(const struct top_model *model, const struct top_row *row);

/* "gpu", "minute", "memory", "priority", "processes", "name". */
const char *top_sort_name(enum top_sort sort);
bool top_sort_parse(const char *name, enum top_sort *ret_sort);

/* Makes the rows anew after the order, the filter or what is folded was changed, and keeps the
 * selection where it was: on its row, else on its container, else on its line. Returns 0 or -ENOMEM
 * with the rows as they were. */
int top_model_arrange(struct top_model *model) __attribute__((warn_unused_result));

/* NULL where there is no row. */
const struct top_row *top_model_selected(const struct top_model *model);

/* Selects the row that is `rows` below, or the last or first one, and follows it. */
void top_model_move(struct top_model *model, long rows);

struct top_key top_row_key(const struct top_row *row);

/* For qsort and bsearch over structs that begin with a key. */
int top_key_compare(const void *one, const void *other);

#endif
