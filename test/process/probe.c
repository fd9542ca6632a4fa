/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses what libvgpu.so replaces, but no GPU: prints what it got. Built dynamic,
 * static and against musl; `probe LIBRARY` also opens that library. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *in_thread(void *unused)
{
    static int errno_kept;
    int bytes;
    errno = 0;
    if (ioctl(-1, FIONREAD, &bytes) != 0)
        errno_kept = errno;
    (void)unused;
    return &errno_kept;
}

static void try_names(void *handle, const char *what)
{
    static const char *const names[] = {"qsort", "curl_easy_init", "custom", "cut", "cu", "cuFoo",
        "nvml", "nvmlFoo", "nvmlDeviceGetFoo", "no_such_function", "empty_function"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        errno = 4242;
        void *found = dlsym(handle, names[i]);
        int errno_after = found ? errno : 0;
        printf("%s %s %s %d %s\n", what, names[i], found ? "found" : "absent", errno_after,
            dlerror() ? "error" : "no error");
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *result = NULL;
    int pipes[2], bytes = 0, status = 0;
    if (pipe(pipes) != 0 || write(pipes[1], "four", 4) != 4)
        return 1;
    printf("ioctl %d", ioctl(pipes[0], FIONREAD, &bytes));
    printf(" %d\n", bytes);
    if (pthread_create(&thread, NULL, in_thread, NULL) == 0)
        pthread_join(thread, &result);
    printf("errno %d\n", result ? *(int *)result : -1);
    try_names(RTLD_DEFAULT, "default");
    if (argc > 1) {
        void *library = dlopen(argv[1], RTLD_NOW);
        printf("dlopen %s\n", library ? "opened" : "failed");
        if (library)
            try_names(library, "library");
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(7);
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    return 3;
}
