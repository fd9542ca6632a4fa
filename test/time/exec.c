/* SPDX-License-Identifier: Apache-2.0 */
/* A program that a process of the test executes is in the test as well, whatever environment it is
 * given: this library is added to what is preloaded. */
#include "thread.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRELOAD "LD_PRELOAD"
#define WORDS_MAX 1024

static char page_entry[PATH_MAX + 32], library_entry[PATH_MAX + 32];

__attribute__((constructor)) static void begin(void)
{
    snprintf(page_entry, sizeof(page_entry), "%s=%s", VTIME_VARIABLE, getenv(VTIME_VARIABLE));
    snprintf(library_entry, sizeof(library_entry), "%s=%s", VTIME_LIBRARY, getenv(VTIME_LIBRARY));
}

static const char *library(void)
{
    return library_entry + sizeof(VTIME_LIBRARY);
}

static bool is_of(const char *entry, const char *variable)
{
    size_t length = strlen(variable);
    return !strncmp(entry, variable, length) && entry[length] == '=';
}

static size_t count_of(char *const list[])
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

static const char *preload_of(char *const list[])
{
    for (size_t i = 0; list && list[i]; i++) {
        if (is_of(list[i], PRELOAD))
            return list[i] + sizeof(PRELOAD);
    }
    return "";
}

/* Bytes of the entry that fill_environment makes. */
static size_t preload_bytes(char *const list[])
{
    return sizeof(PRELOAD) + strlen(preload_of(list)) + strlen(library()) + 2;
}

/* The list with what this library adds; it has room for three entries more. Entries that are there
 * keep their places. */
static void fill_environment(char *const list[], char **ret_list, char *ret_preload)
{
    const char *before = preload_of(list);
    bool has = strstr(before, library()) != NULL;
    sprintf(
        ret_preload, PRELOAD "=%s%s%s", before, *before && !has ? ":" : "", has ? "" : library());
    size_t count = 0;
    bool has_preload = false;
    for (size_t i = 0; list && list[i]; i++) {
        bool is_preload = is_of(list[i], PRELOAD);
        has_preload |= is_preload;
        if (!is_of(list[i], VTIME_VARIABLE) && !is_of(list[i], VTIME_LIBRARY))
            ret_list[count++] = is_preload ? ret_preload : list[i];
    }
    if (!has_preload)
        ret_list[count++] = ret_preload;
    ret_list[count++] = page_entry;
    ret_list[count++] = library_entry;
    ret_list[count] = NULL;
}

#define FILL_ENVIRONMENT(list, ret)                                                                \
    char *ret[count_of(list) + 4];                                                                 \
    fill_environment(list, ret, alloca(preload_bytes(list)))

static int execute(const char *path, char *const argv[], char *const list[])
{
    FILL_ENVIRONMENT(list, all);
    return (int)call_result(raw_call(SYS_execve, (long)path, (long)argv, (long)all, 0, 0, 0));
}

REPLACES int execve(const char *path, char *const argv[], char *const list[])
{
    return execute(path, argv, list);
}

REPLACES int execv(const char *path, char *const argv[])
{
    return execute(path, argv, environ);
}

REPLACES int fexecve(int fd, char *const argv[], char *const list[])
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return execute(path, argv, list);
}

/* The places of the name in PATH, one after another. A script without a first line that names its
 * interpreter is the shell's. */
REPLACES int execvpe(const char *name, char *const argv[], char *const list[])
{
    const char *at = getenv("PATH");
    int error = ENOENT;
    if (strchr(name, '/') || !at)
        return execute(name, argv, list);
    while (at) {
        char path[PATH_MAX];
        const char *end = strchrnul(at, ':');
        snprintf(path, sizeof(path), "%.*s/%s", (int)(end - at), end == at ? "." : at, name);
        (void)execute(path, argv, list);
        error = errno == EACCES ? EACCES : error;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return -1;
        at = *end ? end + 1 : NULL;
    }
    errno = error;
    return -1;
}

REPLACES int execvp(const char *name, char *const argv[])
{
    return execvpe(name, argv, environ);
}

/* The arguments of the variadic ones, and the environment that may follow them. */
#define COLLECT(first, words, list, has_environment)                                               \
    do {                                                                                           \
        va_list rest;                                                                              \
        size_t count = 1;                                                                          \
        (words)[0] = (char *)(uintptr_t)(first);                                                   \
        va_start(rest, first);                                                                     \
        while (count < WORDS_MAX && ((words)[count] = va_arg(rest, char *)))                       \
            count++;                                                                               \
        if (has_environment)                                                                       \
            (list) = va_arg(rest, char *const *);                                                  \
        va_end(rest);                                                                              \
    } while (0)

REPLACES int execl(const char *path, const char *word, ...)
{
    char *words[WORDS_MAX + 1] = {0}, *const *list = environ;
    COLLECT(word, words, list, false);
    return execute(path, words, list);
}

REPLACES int execle(const char *path, const char *word, ...)
{
    char *words[WORDS_MAX + 1] = {0}, *const *list = NULL;
    COLLECT(word, words, list, true);
    return execute(path, words, list);
}

REPLACES int execlp(const char *name, const char *word, ...)
{
    char *words[WORDS_MAX + 1] = {0}, *const *list = environ;
    COLLECT(word, words, list, false);
    return execvpe(name, words, list);
}

typedef int spawn(pid_t *, const char *, const posix_spawn_file_actions_t *,
    const posix_spawnattr_t *, char *const[], char *const[]);

REPLACES int posix_spawn(pid_t *ret_pid, const char *path,
    const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
    char *const argv[], char *const list[])
{
    FILL_ENVIRONMENT(list, all);
    spawn *next = (spawn *)dlsym(RTLD_NEXT, "posix_spawn");
    return next(ret_pid, path, actions, attributes, argv, all);
}

REPLACES int posix_spawnp(pid_t *ret_pid, const char *name,
    const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
    char *const argv[], char *const list[])
{
    FILL_ENVIRONMENT(list, all);
    spawn *next = (spawn *)dlsym(RTLD_NEXT, "posix_spawnp");
    return next(ret_pid, name, actions, attributes, argv, all);
}
