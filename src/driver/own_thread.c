/* SPDX-License-Identifier: Apache-2.0 */
/* pthread_create is looked up, because linking it would require glibc 2.34. */
#include "driver/own_thread.h"

#include "driver/library.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

bool own_thread_start(void *(*run)(void *argument))
{
    __typeof__(pthread_create) *create =
        (__typeof__(pthread_create) *)library_next_function("pthread_create");
    pthread_attr_t attributes;
    sigset_t all, former;
    pthread_t thread;
    if (!create || pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &former);
    int error = create(&thread, &attributes, run, NULL);
    sigprocmask(SIG_SETMASK, &former, NULL);
    return error == 0;
}
