/* SPDX-License-Identifier: Apache-2.0 */
#include "node/install.h"

#include "net/log_line.h"
#include "node/settings.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_S 30
#define AGAIN_S 300

extern char **environ;

struct install {
    const struct node_settings *settings;
    void (*on_done)(void *context);
    void *context;
    struct event *timer, *child;
    pid_t pid; /* 0: none runs */
    bool done, failed;
};

static void arm(struct install *install, int seconds)
{
    const struct timeval wait = {seconds, 0};
    event_add(install->timer, &wait);
}

static void finish(struct install *install)
{
    if (install->done)
        return;
    install->done = true;
    install->on_done(install->context);
}

static void fail(struct install *install, const char *what, int number)
{
    if (!install->failed)
        log_line(LOG_LINE_ERROR, "install: %s %s (%d); %s, trying again every %d s",
            install->settings->installer, what, number,
            install->done ? "the library may be missing"
                          : "no device is offered without the library",
            RETRY_S);
    install->failed = true;
    arm(install, RETRY_S);
}

/* The daemon's signals and its stdout are its own. */
static int spawn(const struct node_settings *settings, pid_t *ret_pid)
{
    char target[SETTINGS_PATH_BYTES + 16], seen_as[SETTINGS_PATH_BYTES + 32];
    snprintf(target, sizeof(target), "%s/vgpu", settings->hook_path);
    snprintf(seen_as, sizeof(seen_as), "%s/vgpu/libvgpu.so", settings->hook_path);
    char *const arguments[] = {(char *)settings->installer, "--source",
        (char *)settings->library_source, "--target", target, "--seen-as", seen_as, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    if (posix_spawn_file_actions_init(&actions))
        return ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int failure =
        posix_spawn(ret_pid, settings->installer, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct install *install = context;
    (void)fd, (void)what;
    if (install->pid)
        return;
    if (!*install->settings->library_source) {
        finish(install);
        return;
    }
    int failure = spawn(install->settings, &install->pid);
    if (failure) {
        install->pid = 0;
        fail(install, strerror(failure), failure);
    }
}

static void on_child(evutil_socket_t fd, short what, void *context)
{
    struct install *install = context;
    int status;
    (void)fd, (void)what;
    if (!install->pid || waitpid(install->pid, &status, WNOHANG) != install->pid)
        return;
    install->pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail(install, WIFEXITED(status) ? "ended with a status" : "was ended by a signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        return;
    }
    install->failed = false;
    arm(install, AGAIN_S);
    finish(install);
}

struct install *install_create(struct event_base *base, const struct node_settings *settings,
    void (*on_done)(void *context), void *context, struct error *error)
{
    struct install *install = calloc(1, sizeof(*install));
    if (install) {
        *install = (struct install){.settings = settings, .on_done = on_done, .context = context};
        install->timer = evtimer_new(base, on_timer, install);
        install->child = evsignal_new(base, SIGCHLD, on_child, install);
    }
    if (!install || !install->timer || !install->child || event_add(install->child, NULL)) {
        error_set(error, ENOMEM, "no memory for the library's installation");
        install_destroy(install);
        return NULL;
    }
    arm(install, 0);
    return install;
}

void install_destroy(struct install *install)
{
    if (!install)
        return;
    if (install->timer)
        event_free(install->timer);
    if (install->child)
        event_free(install->child);
    free(install);
}
