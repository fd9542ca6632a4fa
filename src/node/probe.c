/* SPDX-License-Identifier: Apache-2.0 */
#include "node/probe.h"

#include "net/log_line.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 1000 /* for an event; how long the thread needs at most to end */
#define RETRY_S 10
#define JOIN_S 3
/* A card that is dying may tell hundreds of Xids; one is enough to mark it. */
#define MESSAGES_MAX 256
#define LOOK_MS_MIN 1000
#define CARDS_MAX 64

struct message {
    STAILQ_ENTRY(message) entry;
    struct scan *scan; /* or an event, or (`is_absent`) a text */
    bool is_event, is_absent;
    struct probe_event event;
    char text[ERROR_TEXT_BYTES];
};
STAILQ_HEAD(messages, message);

struct probe {
    /* The thread's alone. */
    struct nvml nvml;
    nvmlEventSet_t events;
    struct {
        char uuid[DEVICE_UUID_BYTES];
        nvmlDevice_t handle;
    } watched[CARDS_MAX]; /* the cards whose events are waited for */
    size_t watched_count;
    unsigned generation;
    char said[ERROR_TEXT_BYTES];
    bool events_failed;

    /* Set before the thread starts. */
    char inside[PATH_MAX], root[PATH_MAX];
    char sysfs[256], proc[256];
    struct probe_options options;

    /* Under `mutex`. */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct messages messages;
    size_t message_count;
    bool stop, woken, anew;
    unsigned hurry_s;

    /* The loop's alone. */
    struct probe_callbacks callbacks;
    struct event *readable;
    pthread_t thread;
    int wakeup; /* an eventfd: a message is there */
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Takes the message. */
static void send_message(struct probe *probe, struct message *message)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&probe->mutex);
    bool full = probe->message_count >= MESSAGES_MAX && message->is_event;
    if (!full) {
        STAILQ_INSERT_TAIL(&probe->messages, message, entry);
        probe->message_count++;
    }
    pthread_mutex_unlock(&probe->mutex);
    if (full)
        free(message);
    else if (write(probe->wakeup, &one, sizeof(one)) < 0)
        return; /* it is readable already */
}

static void tell_absent(struct probe *probe, const char *text)
{
    if (!strcmp(probe->said, text))
        return;
    struct message *message = calloc(1, sizeof(*message));
    if (!message)
        return;
    snprintf(probe->said, sizeof(probe->said), "%s", text);
    message->is_absent = true;
    snprintf(message->text, sizeof(message->text), "%s", text);
    send_message(probe, message);
}

static void drop_events(struct probe *probe)
{
    if (probe->events)
        (void)nvml_call(&probe->nvml, nvmlEventSetFree, probe->events);
    probe->events = NULL;
    probe->watched_count = 0;
}

static void close_nvml(struct probe *probe)
{
    drop_events(probe);
    nvml_close(&probe->nvml);
}

static bool watches(const struct probe *probe, const struct scan *scan)
{
    size_t at = 0;
    for (size_t i = 0; i < scan->count; i++) {
        const struct scan_card *card = &scan->cards[i];
        if (*card->parent || !*card->uuid)
            continue;
        if (at >= probe->watched_count || strcmp(probe->watched[at++].uuid, card->uuid) != 0)
            return false;
    }
    return at == probe->watched_count;
}

static void watch_card(struct probe *probe, const struct scan_card *card)
{
    const unsigned long long wanted =
        NVML_EVENT_TYPE_XID_CRITICAL_ERROR | NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR;
    unsigned long long supported = 0;
    nvmlDevice_t handle = NULL;
    if (*card->parent || !*card->uuid || probe->watched_count >= CARDS_MAX)
        return;
    if (nvml_call(&probe->nvml, nvmlDeviceGetHandleByIndex_v2, card->index, &handle) ==
            NVML_SUCCESS &&
        nvml_call(&probe->nvml, nvmlDeviceGetSupportedEventTypes, handle, &supported) ==
            NVML_SUCCESS)
        (void)nvml_call(
            &probe->nvml, nvmlDeviceRegisterEvents, handle, supported & wanted, probe->events);
    memcpy(probe->watched[probe->watched_count].uuid, card->uuid, DEVICE_UUID_BYTES);
    probe->watched[probe->watched_count++].handle = handle;
}

/* The set follows the cards. A card that has no events is watched by the looks alone. */
static void watch_events(struct probe *probe, const struct scan *scan)
{
    if (!probe->options.with_events || (probe->events && watches(probe, scan)))
        return;
    drop_events(probe);
    if (nvml_call(&probe->nvml, nvmlEventSetCreate, &probe->events) != NVML_SUCCESS) {
        probe->events = NULL;
        return;
    }
    for (size_t i = 0; i < scan->count; i++)
        watch_card(probe, &scan->cards[i]);
}

/* Whether NVML may stay open. */
static bool look(struct probe *probe)
{
    struct message *message = calloc(1, sizeof(*message));
    struct scan *scan = scan_make(&probe->nvml, probe->generation, probe->options.with_links,
        &(struct scan_places){probe->sysfs, probe->proc});
    if (!message || !scan) {
        free(message);
        scan_destroy(scan);
        return true;
    }
    bool usable = !*scan->problem;
    if (usable) {
        watch_events(probe, scan);
        *probe->said = '\0';
    }
    message->scan = scan;
    send_message(probe, message);
    return usable;
}

static bool open_nvml(struct probe *probe)
{
    struct error error = {.text = ""};
    if (probe->nvml.library)
        return true;
    if (nvml_open(&probe->nvml, probe->inside, probe->root, &error)) {
        tell_absent(probe, error.text);
        return false;
    }
    probe->generation++;
    return true;
}

static void tell_event(struct probe *probe, const nvmlEventData_t *data)
{
    struct message *message = calloc(1, sizeof(*message));
    if (!message)
        return;
    message->is_event = true;
    message->event.gpu_instance = data->gpuInstanceId;
    message->event.compute_instance = data->computeInstanceId;
    message->event.xid =
        data->eventType == NVML_EVENT_TYPE_XID_CRITICAL_ERROR ? data->eventData : PROBE_XID_ECC;
    /* A card that is lost does not tell its UUID any more. */
    for (size_t i = 0; i < probe->watched_count; i++)
        if (probe->watched[i].handle == data->device)
            memcpy(message->event.uuid, probe->watched[i].uuid, DEVICE_UUID_BYTES);
    send_message(probe, message);
}

/* Waits for `ms` or until it is woken, without NVML. */
static void rest(struct probe *probe, uint64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&probe->mutex);
    while (!probe->stop && !probe->woken)
        if (pthread_cond_timedwait(&probe->wake, &probe->mutex, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&probe->mutex);
}

/* Waits a while, for an event too. Whether a look is needed at once. */
static bool wait_events(struct probe *probe, uint64_t ms)
{
    nvmlEventData_t data = {
        .gpuInstanceId = PROBE_NO_INSTANCE, .computeInstanceId = PROBE_NO_INSTANCE};
    if (!probe->events) {
        rest(probe, ms);
        return false;
    }
    nvmlReturn_t result = nvml_call(&probe->nvml, nvmlEventSetWait_v2, probe->events, &data,
        (unsigned)(ms < WAIT_MS ? ms : WAIT_MS));
    if (result == NVML_SUCCESS) {
        tell_event(probe, &data);
        probe->events_failed = false;
        return true;
    }
    if (result == NVML_ERROR_TIMEOUT) {
        probe->events_failed = false;
        return false;
    }
    /* A card that is lost ends the wait for all: the look tells which. Without a pause a wait that
     * fails at once would spin. */
    bool first = !probe->events_failed;
    if (first)
        log_line(LOG_LINE_WARNING, "health: waiting for events of the cards failed: %s",
            nvml_text(&probe->nvml, result));
    probe->events_failed = true;
    drop_events(probe);
    rest(probe, WAIT_MS);
    return first;
}

struct pace {
    bool stop, woken, anew;
    uint64_t interval_ms;
};

static struct pace take_pace(struct probe *probe)
{
    pthread_mutex_lock(&probe->mutex);
    struct pace pace = {probe->stop, probe->woken, probe->anew,
        1000ull * (probe->hurry_s ? probe->hurry_s : probe->options.interval_s)};
    probe->woken = false;
    pthread_mutex_unlock(&probe->mutex);
    return pace;
}

/* Looks; where that is impossible, NVML is closed and the thread rests. */
static bool look_or_rest(struct probe *probe, bool anew)
{
    if (anew)
        close_nvml(probe);
    if (open_nvml(probe) && look(probe))
        return true;
    close_nvml(probe);
    rest(probe, 1000ull * probe->options.retry_s);
    return false;
}

static void *run(void *argument)
{
    struct probe *probe = argument;
    uint64_t looked_ms = 0;
    bool due = true; /* something has happened since the last look */
    for (struct pace pace; pace = take_pace(probe), !pace.stop;) {
        uint64_t waited_ms = now_ms() - looked_ms;
        uint64_t pause_ms = due ? LOOK_MS_MIN : pace.interval_ms;
        if (pace.woken || waited_ms >= pause_ms) {
            due = !look_or_rest(probe, pace.anew);
            if (due) {
                looked_ms = 0;
                continue;
            }
            looked_ms = now_ms();
            waited_ms = 0;
            pause_ms = pace.interval_ms;
        }
        if (wait_events(probe, pause_ms - waited_ms))
            due = true;
    }
    close_nvml(probe);
    return NULL;
}

static void deliver(struct probe *probe, struct message *message)
{
    const struct probe_callbacks *callbacks = &probe->callbacks;
    if (message->scan)
        callbacks->on_scan(callbacks->context, message->scan);
    else if (message->is_event)
        callbacks->on_event(callbacks->context, &message->event);
    else
        callbacks->on_absent(callbacks->context, message->text);
    scan_destroy(message->scan);
    free(message);
}

static struct message *take_message(struct probe *probe)
{
    pthread_mutex_lock(&probe->mutex);
    struct message *message = STAILQ_FIRST(&probe->messages);
    if (message) {
        STAILQ_REMOVE_HEAD(&probe->messages, entry);
        probe->message_count--;
    }
    pthread_mutex_unlock(&probe->mutex);
    return message;
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct probe *probe = context;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof(count)) < 0)
        return;
    for (struct message *message; (message = take_message(probe));)
        deliver(probe, message);
}

/* The thread handles no signal: they are the loop's. */
static int start_thread(struct probe *probe)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&probe->thread, NULL, run, probe);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static void init_wake(struct probe *probe)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&probe->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&probe->mutex, NULL);
}

static void free_probe(struct probe *probe)
{
    for (struct message *message; (message = STAILQ_FIRST(&probe->messages));) {
        STAILQ_REMOVE_HEAD(&probe->messages, entry);
        scan_destroy(message->scan);
        free(message);
    }
    if (probe->readable)
        event_free(probe->readable);
    if (probe->wakeup >= 0)
        close(probe->wakeup);
    pthread_cond_destroy(&probe->wake);
    pthread_mutex_destroy(&probe->mutex);
    free(probe);
}

struct probe *probe_create(struct event_base *base, const struct probe_options *options,
    const struct probe_callbacks *callbacks, struct error *error)
{
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe) {
        error_set(error, ENOMEM, "no memory for the probe");
        return NULL;
    }
    STAILQ_INIT(&probe->messages);
    init_wake(probe);
    probe->callbacks = *callbacks;
    probe->options = *options;
    probe->options.retry_s = options->retry_s ? options->retry_s : RETRY_S;
    snprintf(probe->inside, sizeof(probe->inside), "%s", options->inside);
    snprintf(probe->root, sizeof(probe->root), "%s", options->root);
    snprintf(probe->sysfs, sizeof(probe->sysfs), "%s", options->places.sysfs);
    snprintf(probe->proc, sizeof(probe->proc), "%s", options->places.proc);
    probe->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (probe->wakeup >= 0)
        probe->readable = event_new(base, probe->wakeup, EV_READ | EV_PERSIST, on_readable, probe);
    int failure = ENOMEM;
    if (!probe->readable || event_add(probe->readable, NULL) || (failure = start_thread(probe))) {
        error_set(error, failure, "the thread for NVML cannot be started: %s", strerror(failure));
        free_probe(probe);
        return NULL;
    }
    return probe;
}

void probe_destroy(struct probe *probe)
{
    struct timespec until;
    if (!probe)
        return;
    pthread_mutex_lock(&probe->mutex);
    probe->stop = true;
    pthread_cond_signal(&probe->wake);
    pthread_mutex_unlock(&probe->mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_S;
    if (pthread_timedjoin_np(probe->thread, NULL, &until) == 0)
        free_probe(probe);
    else
        event_del(probe->readable);
}

void probe_hurry(struct probe *probe, unsigned seconds, bool anew)
{
    pthread_mutex_lock(&probe->mutex);
    probe->hurry_s = seconds;
    probe->anew = anew;
    pthread_mutex_unlock(&probe->mutex);
}

void probe_wake(struct probe *probe)
{
    pthread_mutex_lock(&probe->mutex);
    probe->woken = true;
    pthread_cond_signal(&probe->wake);
    pthread_mutex_unlock(&probe->mutex);
}
