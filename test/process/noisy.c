/* SPDX-License-Identifier: Apache-2.0 */
/* A preload that does one of the things that ours must not, so that inert.py can be seen to notice
 * each: VGPU_TEST_NOISE names it. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void handle(int number)
{
    (void)number;
}

static void *pause_for_ever(void *unused)
{
    (void)unused;
    pause();
    return NULL;
}

static void block_a_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

__attribute__((constructor)) static void make_noise(void)
{
    pthread_t thread;
    const char *noise = getenv("VGPU_TEST_NOISE");
    if (!noise)
        return;
    if (!strcmp(noise, "umask"))
        umask(0);
    else if (!strcmp(noise, "handler"))
        signal(SIGUSR1, handle);
    else if (!strcmp(noise, "ignored"))
        signal(SIGUSR1, SIG_IGN);
    else if (!strcmp(noise, "mask"))
        block_a_signal();
    else if (!strcmp(noise, "descriptor"))
        (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
    else if (!strcmp(noise, "thread"))
        pthread_create(&thread, NULL, pause_for_ever, NULL);
    else if (!strcmp(noise, "environment"))
        setenv("NOISE", "1", 1);
    else if (!strcmp(noise, "directory"))
        (void)!chdir("/");
    else if (!strcmp(noise, "stderr"))
        fprintf(stderr, "loaded\n");
    else if (!strcmp(noise, "file"))
        (void)!open("left-behind", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    else if (!strcmp(noise, "child") && fork() == 0)
        _exit(0);
}
