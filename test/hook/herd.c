/* SPDX-License-Identifier: Apache-2.0 */
/* The herd's workers. */
#include "herd.h"

#include <pthread.h>

#define HELD_MAX 24
#define BLOCK (2 * MIB)
#define POOL_STEP (32 * MIB)
#define MODULE_BYTES 5000000
#define CONTEXT_LEAST_BYTES (500 * MIB)

struct herd *herd;

static CUcontext primary; /* of a worker; NULL: it has none yet */

/* What a worker asks for: allocation_kinds, then these. */
enum { MODULE = 100, CONTEXT };

struct held {
    unsigned kind;
    uint64_t handle, least_bytes, most_bytes;
};

struct hand {
    struct herd_worker *worker;
    struct herd_thread *thread;
    unsigned seed, count;
    bool has_context, is_alone; /* alone: the worker's other threads do not run yet */
    struct held held[HELD_MAX];
};

void herd_begin(unsigned threads)
{
    herd = mmap(NULL, sizeof(*herd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (herd == MAP_FAILED)
        abort();
    herd->threads = threads;
    herd->is_api = strcmp(bed_ledger(), "rm") != 0;
}

static CUresult make(unsigned kind, uint64_t bytes, uint64_t *ret_handle)
{
    static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                              ".visible .global .align 4 .b8 table[5000000];\n";
    CUmodule module = NULL;
    CUcontext context = NULL;
    CUresult result;
    if (kind < allocation_kind_count)
        return allocation_kinds[kind].make(bytes, ret_handle);
    if (kind == MODULE) {
        result = CU(cuModuleLoadData)(&module, ptx);
        *ret_handle = (uintptr_t)module;
        return result;
    }
    result = CU(cuCtxCreate_v2)(&context, 0, 0);
    if (result == CUDA_SUCCESS)
        (void)CU(cuCtxPopCurrent_v2)(&context);
    *ret_handle = (uintptr_t)context;
    return result;
}

static CUresult drop(unsigned kind, uint64_t handle)
{
    if (kind < allocation_kind_count)
        return allocation_kinds[kind].drop(handle);
    if (kind == MODULE)
        return CU(cuModuleUnload)((CUmodule)(uintptr_t)handle);
    return CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)handle);
}

static void raise_by(uint64_t *word, uint64_t by)
{
    __atomic_store_n(word, *word + by, __ATOMIC_SEQ_CST);
}

static void lower_by(uint64_t *word, uint64_t by)
{
    __atomic_store_n(word, *word - by, __ATOMIC_SEQ_CST);
}

static uint64_t worker_most(const struct herd_worker *worker)
{
    uint64_t bytes = 0;
    for (unsigned t = 0; t < herd->threads; t++)
        bytes += __atomic_load_n(&worker->threads[t].most_bytes, __ATOMIC_SEQ_CST);
    return bytes;
}

static bool is_pooled(unsigned kind)
{
    return kind == 3 || kind == 4;
}

/* Small ones of the kinds that know them, the others in whole blocks. Under the API ledger a pool
 * may outgrow what was reserved where its free pieces are too small or several threads take them
 * (docs/compatibility.md): there it is used in pieces of its own step, by one thread. */
static uint64_t choose_bytes(unsigned kind, unsigned *seed)
{
    if (kind == MODULE)
        return MODULE_BYTES;
    if (kind == CONTEXT)
        return HERD_CONTEXT_BYTES;
    if (is_pooled(kind))
        return herd->is_api ? POOL_STEP : (1 + (uint64_t)rand_r(seed) % 32) * BLOCK;
    if (kind < 3 && rand_r(seed) % 2)
        return 4096 + (uint64_t)rand_r(seed) % 500000;
    return (1 + (uint64_t)rand_r(seed) % (rand_r(seed) % 4 ? 64 : 256)) * BLOCK;
}

/* Between what may be charged for it lie the blocks that small ones share, a pool's chunks that are
 * in use in part, and a mipmap's levels. */
static struct held choose(unsigned *seed, bool may_have_context, uint64_t *ret_bytes)
{
    unsigned kind = (unsigned)rand_r(seed) % (allocation_kind_count + 2);
    if (kind >= allocation_kind_count)
        kind = kind == allocation_kind_count || !may_have_context || rand_r(seed) % 4 ? MODULE
                                                                                      : CONTEXT;
    if (is_pooled(kind) && herd->is_api && herd->threads > 1)
        kind = 0;
    uint64_t bytes = *ret_bytes = choose_bytes(kind, seed);
    struct held one = {.kind = kind, .least_bytes = bytes, .most_bytes = 2 * bytes + BLOCK};
    if (kind == CONTEXT) {
        one.least_bytes = CONTEXT_LEAST_BYTES;
        one.most_bytes = bytes;
    } else if (is_pooled(kind)) {
        one.most_bytes = 4 * POOL_STEP;
    } else if (bytes < BLOCK && kind < 2) {
        one.least_bytes = 0;
    }
    return one;
}

static void note_answer(unsigned kind, CUresult result)
{
    long *word = &herd->grants;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        word = &herd->refusals;
        if (herd->quota_bytes != UINT64_MAX)
            word = &herd->wrong_refusals;
    } else if (result != CUDA_SUCCESS) {
        dprintf(STDOUT_FILENO, "# kind %u answers %d\n", kind, (int)result);
        word = &herd->odd_answers;
    }
    __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
}

static void take_one(struct hand *hand)
{
    uint64_t bytes;
    struct held one = choose(&hand->seed, !hand->has_context, &bytes);
    raise_by(&hand->thread->most_bytes, one.most_bytes);
    if (worker_most(hand->worker) > herd->quota_bytes) {
        lower_by(&hand->thread->most_bytes, one.most_bytes);
        return;
    }
    CUresult result = make(one.kind, bytes, &one.handle);
    note_answer(one.kind, result);
    if (result != CUDA_SUCCESS) {
        lower_by(&hand->thread->most_bytes, one.most_bytes);
        return;
    }
    raise_by(&hand->thread->least_bytes, one.least_bytes);
    hand->has_context |= one.kind == CONTEXT;
    hand->held[hand->count++] = one;
}

static void drop_one(struct hand *hand, unsigned index)
{
    struct held one = hand->held[index];
    hand->held[index] = hand->held[--hand->count];
    hand->has_context &= one.kind != CONTEXT;
    lower_by(&hand->thread->least_bytes, one.least_bytes);
    note_answer(one.kind, drop(one.kind, one.handle));
    lower_by(&hand->thread->most_bytes, one.most_bytes);
}

static void stand(struct hand *hand)
{
    for (int pause; (pause = herd_get(&herd->pause)) % HERD_PAUSES != HERD_RUN; bed_sleep_ms(1)) {
        while (pause % HERD_PAUSES == HERD_PAUSE_EMPTY && hand->count)
            drop_one(hand, hand->count - 1);
        herd_set(&hand->thread->paused, pause);
        for (unsigned t = 1; hand->is_alone && t < herd->threads; t++)
            herd_set(&hand->worker->threads[t].paused, pause);
    }
}

__attribute__((noreturn)) static void work(struct hand *hand)
{
    for (;; raise_by(&hand->thread->progress, 1)) {
        stand(hand);
        if (hand->count < HELD_MAX && rand_r(&hand->seed) % 5 < 3)
            take_one(hand);
        else if (hand->count)
            drop_one(hand, (unsigned)rand_r(&hand->seed) % hand->count);
    }
}

static void *work_thread(void *argument)
{
    (void)CU(cuCtxSetCurrent)(primary);
    work(argument);
}

/* Where others hold all, there may be no room for a context yet. */
static void take_context(struct hand *hand)
{
    CUresult result;
    if (CU(cuInit)(0) != CUDA_SUCCESS)
        _exit(1);
    raise_by(&hand->thread->most_bytes, HERD_CONTEXT_BYTES);
    do {
        stand(hand);
        result = CU(cuDevicePrimaryCtxRetain)(&primary, 0);
        note_answer(CONTEXT, result);
        raise_by(&hand->thread->progress, 1);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS)
        _exit(1);
    (void)CU(cuCtxSetCurrent)(primary);
    raise_by(&hand->thread->least_bytes, CONTEXT_LEAST_BYTES);
}

void herd_work(void *argument)
{
    static struct hand hands[HERD_THREADS_MAX];
    pthread_t thread;
    struct herd_worker *worker = argument;
    for (unsigned t = 0; t < herd->threads; t++)
        hands[t] = (struct hand){.worker = worker,
            .thread = &worker->threads[t],
            .seed = (unsigned)getpid() * HERD_THREADS_MAX + t};
    hands[0].is_alone = true;
    take_context(&hands[0]);
    hands[0].is_alone = false;
    for (unsigned t = 1; t < herd->threads; t++)
        if (pthread_create(&thread, NULL, work_thread, &hands[t]) != 0)
            _exit(1);
    work(&hands[0]);
}
