/* SPDX-License-Identifier: Apache-2.0 */
#include "top/worker.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void *run(void *context)
{
    struct top_worker *worker = context;
    for (;;) {
        pthread_mutex_lock(&worker->lock);
        while (!worker->asked || worker->done)
            pthread_cond_wait(&worker->asked_or_done, &worker->lock);
        pthread_mutex_unlock(&worker->lock);
        worker->work(worker->context);
        pthread_mutex_lock(&worker->lock);
        worker->done = true;
        pthread_mutex_unlock(&worker->lock);
        (void)!write(worker->event, &(uint64_t){1}, sizeof(uint64_t));
    }
    return NULL;
}

int top_worker_start(struct top_worker *worker, void (*work)(void *context), void *context)
{
    pthread_t thread;
    *worker = (struct top_worker){.work = work,
        .context = context,
        .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .asked_or_done = PTHREAD_COND_INITIALIZER};
    if (worker->event < 0)
        return -errno;
    int error = pthread_create(&thread, NULL, run, worker);
    if (!error)
        pthread_detach(thread);
    return -error;
}

uint64_t top_worker_busy_ns(struct top_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    uint64_t since = worker->asked ? worker->since_ns : 0;
    pthread_mutex_unlock(&worker->lock);
    return since ? clock_now_ns() - since + 1 : 0;
}

void top_worker_ask(struct top_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->asked = true;
    worker->since_ns = clock_now_ns();
    pthread_cond_signal(&worker->asked_or_done);
    pthread_mutex_unlock(&worker->lock);
}

bool top_worker_take(struct top_worker *worker)
{
    uint64_t count;
    (void)!read(worker->event, &count, sizeof(count));
    pthread_mutex_lock(&worker->lock);
    bool done = worker->done;
    if (done)
        worker->asked = worker->done = false;
    pthread_mutex_unlock(&worker->lock);
    return done;
}
