/* SPDX-License-Identifier: Apache-2.0 */
/* From one look to the next: which rows were there before, and their values then. */
#include "top/model.h"

#include "base/saturating.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare(uint64_t one, uint64_t other)
{
    return one < other ? -1 : one > other;
}

int top_key_compare(const void *one, const void *other)
{
    const struct top_key *a = one, *b = other;
    int order = compare(a->file_device, b->file_device);
    order = order ? order : compare(a->file_inode, b->file_inode);
    order = order ? order : compare(a->namespace, b->namespace);
    order = order ? order : compare((unsigned)a->pid, (unsigned)b->pid);
    return order ? order : compare(a->device, b->device);
}

/* ---- history ---- */

static struct top_history *create_history(uint64_t look)
{
    struct top_history *history = calloc(1, sizeof(*history));
    if (!history)
        return NULL;
    history->newest = look;
    for (unsigned i = 0; i < TOP_SAMPLES; i++)
        history->gpu[i] = history->memory[i] = -1;
    return history;
}

/* Looks at which it was not there are not known. */
static void note(struct top_history *history, uint64_t look, double gpu, uint64_t memory)
{
    for (uint64_t missed = history->newest + 1; missed < look; missed++) {
        history->gpu[missed % TOP_SAMPLES] = -1;
        history->memory[missed % TOP_SAMPLES] = -1;
    }
    history->newest = look;
    history->gpu[look % TOP_SAMPLES] = (float)gpu;
    history->memory[look % TOP_SAMPLES] = (float)memory;
}

static float value_at(const struct top_model *model, const struct top_history *history,
    const float *values, unsigned age)
{
    if (!history || age >= TOP_SAMPLES || model->looks < age ||
        model->looks - age > history->newest)
        return -1;
    return values[(model->looks - age) % TOP_SAMPLES];
}

float top_history_gpu(
    const struct top_model *model, const struct top_history *history, unsigned age)
{
    return value_at(model, history, history ? history->gpu : NULL, age);
}

float top_history_memory(
    const struct top_model *model, const struct top_history *history, unsigned age)
{
    return value_at(model, history, history ? history->memory : NULL, age);
}

/* ---- containers ---- */

static struct top_key key_of(const struct collected_container *container, unsigned device)
{
    return (struct top_key){.file_device = container->file_device,
        .file_inode = container->file_inode,
        .device = device};
}

static void *find(const void *key, const void *list, size_t count, size_t size)
{
    return list ? bsearch(key, list, count, size, top_key_compare) : NULL;
}

struct top_track *top_model_track(
    const struct top_model *model, const struct collected_container *container, unsigned device)
{
    struct top_key key = key_of(container, device);
    /* clang 14 takes it for the list that enter_tracks freed. */
    return find(&key, model->tracks, /* NOLINT(clang-analyzer-unix.Malloc) */
        model->track_count, sizeof(*model->tracks));
}

/* One that is not met yet has a line all the same. */
static unsigned lines_of(const struct collected_container *container)
{
    return container->device_count ? container->device_count : 1;
}

static int add_track(struct top_model *model, const struct collected_container *container,
    unsigned device, size_t *count)
{
    struct top_key key = key_of(container, device);
    if (find(&key, model->tracks, model->track_count, sizeof(*model->tracks)))
        return 0;
    struct top_history *history = create_history(model->looks + 1);
    if (!history)
        return -ENOMEM;
    model->tracks[(*count)++] = (struct top_track){.key = key, .history = history};
    return 0;
}

/* Rows that are new, or have been gone for long. The new ones are entered behind the others, which
 * stay in order, and then all are sorted. */
static int enter_tracks(struct top_model *model, const struct collection *look)
{
    size_t kept = 0, wanted = 0;
    for (size_t i = 0; i < model->track_count; i++) {
        if (model->looks + 1 - model->tracks[i].history->newest <= TOP_FORGET)
            model->tracks[kept++] = model->tracks[i];
        else
            free(model->tracks[i].history);
    }
    model->track_count = kept;
    for (size_t c = 0; c < look->count; c++)
        wanted += lines_of(&look->containers[c]);
    struct top_track *tracks = malloc((kept + wanted + 1) * sizeof(*tracks));
    if (!tracks)
        return -ENOMEM;
    if (kept)
        memcpy(tracks, model->tracks, kept * sizeof(*tracks));
    free(model->tracks);
    model->tracks = tracks;
    int error = 0;
    size_t count = kept;
    for (size_t c = 0; c < look->count; c++) {
        for (unsigned d = 0; d < lines_of(&look->containers[c]) && !error; d++)
            error = add_track(model, &look->containers[c], d, &count);
    }
    model->track_count = count;
    qsort(tracks, count, sizeof(*tracks), top_key_compare);
    return error;
}

static void note_tracks(struct top_model *model)
{
    for (size_t c = 0; c < model->now.count; c++) {
        const struct collected_container *container = &model->now.containers[c];
        for (unsigned d = 0; d < container->device_count; d++) {
            const struct collected_device *device = &container->devices[d];
            struct top_track *track = top_model_track(model, container, d);
            note(track->history, model->looks, device->share_now, device->memory.bytes);
        }
        if (!container->device_count)
            note(top_model_track(model, container, 0)->history, model->looks, COLLECT_UNKNOWN, 0);
    }
}

/* ---- GPUs ---- */

static int compare_gpus(const void *one, const void *other)
{
    const struct top_gpu *a = one, *b = other;
    return strcmp(a->uuid, b->uuid);
}

static struct top_gpu *find_gpu(const struct top_model *model, const char *uuid)
{
    for (size_t i = 0; i < model->gpu_count; i++) {
        if (!strcmp(model->gpus[i].uuid, uuid))
            return &model->gpus[i];
    }
    return NULL;
}

static int enter_gpu(struct top_model *model, const struct collected_device *device)
{
    if (!device->uuid[0] || find_gpu(model, device->uuid))
        return 0;
    struct top_gpu *gpus = realloc(model->gpus, (model->gpu_count + 1) * sizeof(*gpus));
    if (!gpus)
        return -ENOMEM;
    model->gpus = gpus;
    struct top_gpu *gpu = &gpus[model->gpu_count];
    *gpu = (struct top_gpu){.history = create_history(model->looks + 1)};
    if (!gpu->history)
        return -ENOMEM;
    memcpy(gpu->uuid, device->uuid, sizeof(gpu->uuid) - 1);
    model->gpu_count++;
    return 0;
}

static int enter_gpus(struct top_model *model, const struct collection *look)
{
    int error = 0;
    for (size_t c = 0; c < look->count; c++) {
        for (unsigned d = 0; d < look->containers[c].device_count && !error; d++)
            error = enter_gpu(model, &look->containers[c].devices[d]);
    }
    if (model->gpu_count)
        qsort(model->gpus, model->gpu_count, sizeof(*model->gpus), compare_gpus);
    return error;
}

static void add_to_gpu(struct top_gpu *gpu, const struct collected_device *device, uint64_t look)
{
    if (gpu->seen != look) {
        *gpu = (struct top_gpu){.history = gpu->history, .seen = look, .share = COLLECT_UNKNOWN};
        memcpy(gpu->uuid, device->uuid, sizeof(gpu->uuid) - 1);
    }
    gpu->containers++;
    gpu->memory_bytes = saturating_sum(gpu->memory_bytes, device->memory.bytes);
    if (device->physical_bytes > gpu->physical_bytes)
        gpu->physical_bytes = device->physical_bytes;
    if (device->share_now >= 0)
        gpu->share = (gpu->share >= 0 ? gpu->share : 0) + device->share_now;
    /* Each is measured over a second of its own. */
    if (gpu->share > 100)
        gpu->share = 100;
}

static void note_gpus(struct top_model *model)
{
    size_t kept = 0;
    for (size_t c = 0; c < model->now.count; c++) {
        for (unsigned d = 0; d < model->now.containers[c].device_count; d++) {
            const struct collected_device *device = &model->now.containers[c].devices[d];
            struct top_gpu *gpu = find_gpu(model, device->uuid);
            if (gpu)
                add_to_gpu(gpu, device, model->looks);
        }
    }
    for (size_t i = 0; i < model->gpu_count; i++) {
        struct top_gpu *gpu = &model->gpus[i];
        if (gpu->seen == model->looks) {
            note(gpu->history, model->looks, gpu->share, gpu->memory_bytes);
            model->gpus[kept++] = *gpu;
        } else {
            free(gpu->history);
        }
    }
    model->gpu_count = kept;
}

/* ---- processes ---- */

/* A process that is new, or another with its number, has used nothing that can be told. */
static double share_since(const struct top_work *before, const struct top_work *work)
{
    if (!before || work->read_ns <= before->read_ns || work->gpu_time_ns < before->gpu_time_ns)
        return COLLECT_UNKNOWN;
    double share = 100.0 * (double)(work->gpu_time_ns - before->gpu_time_ns) /
                   (double)(work->read_ns - before->read_ns);
    return share < 100 ? share : 100;
}

static size_t list_works(const struct top_model *model, const struct collected_container *container,
    struct top_work *works)
{
    size_t count = 0;
    for (unsigned p = 0; p < container->process_count; p++) {
        const struct collected_process *process = &container->processes[p];
        for (unsigned d = 0; d < container->device_count; d++) {
            struct top_work *work = &works[count++];
            *work = (struct top_work){.key = key_of(container, d),
                .gpu_time_ns = process->uses[d].gpu_time_ns,
                .read_ns = container->read_ns};
            work->key.pid = process->pid;
            work->key.namespace = container->namespaces[p];
            work->share = COLLECT_UNKNOWN;
            /* Without a limit nothing is measured. */
            if (container->devices[d].share_now >= 0)
                work->share = share_since(
                    find(&work->key, model->works, model->work_count, sizeof(*work)), work);
        }
    }
    return count;
}

static struct top_work *make_works(
    const struct top_model *model, const struct collection *look, size_t *ret_count)
{
    size_t wanted = 0, count = 0;
    for (size_t c = 0; c < look->count; c++)
        wanted += (size_t)look->containers[c].process_count * look->containers[c].device_count;
    struct top_work *works = malloc((wanted + 1) * sizeof(*works));
    if (!works)
        return NULL;
    for (size_t c = 0; c < look->count; c++)
        count += list_works(model, &look->containers[c], works + count);
    qsort(works, count, sizeof(*works), top_key_compare);
    *ret_count = count;
    return works;
}

double top_model_share(const struct top_model *model, const struct top_row *row)
{
    if (!row->process)
        return row->device < row->container->device_count
                   ? row->container->devices[row->device].share_now
                   : COLLECT_UNKNOWN;
    struct top_key key = top_row_key(row);
    const struct top_work *work =
        find(&key, model->works, model->work_count, sizeof(*model->works));
    return work ? work->share : COLLECT_UNKNOWN;
}

/* ---- all of it ---- */

int top_model_take(struct top_model *model, struct collection *look, uint64_t now_ns)
{
    size_t work_count = 0;
    struct top_work *works = NULL;
    int error = enter_tracks(model, look);
    if (!error)
        error = enter_gpus(model, look);
    if (!error)
        works = make_works(model, look, &work_count);
    if (!works) {
        collection_free(look);
        return -ENOMEM;
    }
    free(model->works);
    model->works = works;
    model->work_count = work_count;
    collection_free(&model->now);
    model->now = *look;
    *look = (struct collection){0};
    model->row_count = 0; /* they were of the look before */
    model->span_ns = model->looks ? now_ns - model->taken_ns : 0;
    model->taken_ns = now_ns;
    model->looks++;
    note_tracks(model);
    note_gpus(model);
    return top_model_arrange(model);
}

void top_model_finish(struct top_model *model)
{
    for (size_t i = 0; i < model->track_count; i++)
        free(model->tracks[i].history);
    for (size_t i = 0; i < model->gpu_count; i++)
        free(model->gpus[i].history);
    free(model->tracks);
    free(model->gpus);
    free(model->works);
    free(model->rows);
    collection_free(&model->now);
    *model = (struct top_model){0};
}
