/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/card_samples.h"

#include "base/clock.h"
#include "net/log_line.h"
#include "node/nvml.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STACK_BYTES (256ul * 1024)
#define END_WAIT_S 2

struct card_samples {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    char *inside, *root;
    struct nvml nvml; /* the thread's alone */
    bool said_absent; /* likewise */
    struct card_sample fresh[CARD_SAMPLES_MAX];
    /* Under the lock. */
    bool asked, ends;
    uint64_t taken_ns;
    size_t count;
    struct card_sample cards[CARD_SAMPLES_MAX];
};

/* A failure that is not of this one function. */
static bool is_lost(nvmlReturn_t result)
{
    return result == NVML_ERROR_UNINITIALIZED || result == NVML_ERROR_DRIVER_NOT_LOADED ||
           result == NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

static nvmlReturn_t read_card(struct nvml *nvml, unsigned index, struct card_sample *card)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    nvmlUtilization_t utilization;
    *card = (struct card_sample){.index = index};
    nvmlReturn_t result = nvml_call(nvml, nvmlDeviceGetHandleByIndex_v2, index, &device);
    if (result == NVML_SUCCESS)
        result = nvml_call(nvml, nvmlDeviceGetUUID, device, card->uuid, sizeof(card->uuid));
    if (result == NVML_SUCCESS)
        result = nvml_call(nvml, nvmlDeviceGetName, device, card->name, sizeof(card->name));
    if (result != NVML_SUCCESS)
        return result;
    card->has_memory = nvml_call(nvml, nvmlDeviceGetMemoryInfo, device, &memory) == NVML_SUCCESS;
    if (card->has_memory)
        card->used_bytes = memory.used;
    card->has_utilization =
        nvml_call(nvml, nvmlDeviceGetUtilizationRates, device, &utilization) == NVML_SUCCESS;
    if (card->has_utilization) {
        card->utilization_percent = utilization.gpu;
        card->memory_controller_percent = utilization.memory;
    }
    return NVML_SUCCESS;
}

/* A card that does not answer is left out. */
static size_t read_cards(struct nvml *nvml, struct card_sample *cards)
{
    unsigned all = 0;
    size_t count = 0;
    nvmlReturn_t result = nvml_call(nvml, nvmlDeviceGetCount_v2, &all);
    for (unsigned i = 0; result == NVML_SUCCESS && i < all && count < CARD_SAMPLES_MAX; i++) {
        nvmlReturn_t card = read_card(nvml, i, &cards[count]);
        count += card == NVML_SUCCESS;
        if (is_lost(card))
            result = card;
    }
    if (is_lost(result))
        nvml_close(nvml); /* the next sample opens it anew */
    return result == NVML_SUCCESS ? count : 0;
}

static bool is_open(struct card_samples *samples)
{
    struct error error;
    if (samples->nvml.library)
        return true;
    if (nvml_open(&samples->nvml, samples->inside, samples->root, &error) == 0) {
        log_line(LOG_LINE_INFO, "cards: NVML is open");
        samples->said_absent = false;
        return true;
    }
    if (!samples->said_absent)
        log_line(LOG_LINE_WARNING, "cards: %s; metrics of cards come with it", error.text);
    samples->said_absent = true;
    return false;
}

static bool wait_for_asking(struct card_samples *samples)
{
    pthread_mutex_lock(&samples->lock);
    while (!samples->asked && !samples->ends)
        pthread_cond_wait(&samples->news, &samples->lock);
    bool goes_on = !samples->ends;
    samples->asked = false;
    pthread_mutex_unlock(&samples->lock);
    return goes_on;
}

static void *run(void *context)
{
    struct card_samples *samples = context;
    while (wait_for_asking(samples)) {
        size_t count = is_open(samples) ? read_cards(&samples->nvml, samples->fresh) : 0;
        pthread_mutex_lock(&samples->lock);
        memcpy(samples->cards, samples->fresh, count * sizeof(samples->cards[0]));
        samples->count = count;
        samples->taken_ns = clock_now_ns();
        pthread_mutex_unlock(&samples->lock);
    }
    nvml_close(&samples->nvml);
    return NULL;
}

/* The loop's signals are not for this thread. */
static int start(struct card_samples *samples)
{
    sigset_t all, former;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    int error = pthread_create(&samples->thread, &attributes, run, samples);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static void release(struct card_samples *samples)
{
    pthread_cond_destroy(&samples->news);
    pthread_mutex_destroy(&samples->lock);
    free(samples->inside);
    free(samples->root);
    free(samples);
}

struct card_samples *card_samples_create(const char *inside, const char *root, struct error *error)
{
    struct card_samples *samples = calloc(1, sizeof(*samples));
    if (!samples) {
        error_set(error, ENOMEM, "no memory for the cards");
        return NULL;
    }
    pthread_mutex_init(&samples->lock, NULL);
    pthread_cond_init(&samples->news, NULL);
    samples->inside = strdup(inside);
    samples->root = strdup(root);
    int failed = samples->inside && samples->root ? start(samples) : ENOMEM;
    if (!failed)
        return samples;
    error_set(error, failed, "no thread for the cards: %s", strerror(failed));
    release(samples);
    return NULL;
}

/* A thread that hangs in the driver ends with the process, and has what it uses until then. */
static bool ends_soon(pthread_t thread)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_WAIT_S;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

void card_samples_destroy(struct card_samples *samples)
{
    if (!samples)
        return;
    pthread_mutex_lock(&samples->lock);
    samples->ends = true;
    pthread_cond_signal(&samples->news);
    pthread_mutex_unlock(&samples->lock);
    if (ends_soon(samples->thread))
        release(samples);
}

void card_samples_ask(struct card_samples *samples)
{
    pthread_mutex_lock(&samples->lock);
    samples->asked = true;
    pthread_cond_signal(&samples->news);
    pthread_mutex_unlock(&samples->lock);
}

size_t card_samples_read(
    struct card_samples *samples, uint64_t age_ns, struct card_sample ret_cards[CARD_SAMPLES_MAX])
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&samples->lock);
    size_t count = now - samples->taken_ns <= age_ns ? samples->count : 0;
    memcpy(ret_cards, samples->cards, count * sizeof(ret_cards[0]));
    pthread_mutex_unlock(&samples->lock);
    return count;
}
