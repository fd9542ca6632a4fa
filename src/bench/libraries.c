/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/libraries.h"

#include "bench/bench.h"
#include "host/paths.h"
#include "host/say.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A relative path counts from here, and the loader takes a list: no blank and no colon. */
static char *library_path(const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    if (!strcmp(name, BENCH_OWN)) {
        if (path_find("libvgpu.so", path, sizeof(path)) == 0)
            return strdup(path);
        say_error("libvgpu.so is neither beside this program nor in its library directory");
        return NULL;
    }
    if (!realpath(name, path) || stat(path, &status) != 0) {
        say_error("--library \"%.256s\" is not accepted: %s; accepted: a library's path, or "
                  "\"vgpu\"",
            name, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || strpbrk(path, " :")) {
        say_error("--library \"%.256s\" is not accepted: %s; accepted: a library's path, or "
                  "\"vgpu\"",
            name,
            S_ISREG(status.st_mode) ? "the loader takes no blank and no colon" : "it is no file");
        return NULL;
    }
    return strdup(path);
}

/* FNV-1a, 64 bits, of the library's file: the same path may have another build tomorrow. */
static void set_build(struct bench_subject *subject, const char *path)
{
    unsigned char part[65536];
    char build[32];
    uint64_t hash = 0xcbf29ce484222325u;
    FILE *file = fopen(path, "re");
    for (size_t got; file && (got = fread(part, 1, sizeof(part), file)) > 0;) {
        for (size_t i = 0; i < got; i++)
            hash = (hash ^ part[i]) * 0x100000001b3u;
    }
    if (file && !ferror(file)) {
        snprintf(build, sizeof(build), "%016llx", (unsigned long long)hash);
        bench_subject_set_build(subject, build);
    }
    if (file)
        fclose(file);
}

static bool set_variables(struct bench_subject *subject, char *list)
{
    for (char *rest = NULL, *item = strtok_r(list, ",", &rest); item;
         item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (!value || value == item) {
            say_error("--library has \"%.128s\" behind its path; accepted: NAME=VALUE", item);
            return false;
        }
        *value = '\0';
        bench_subject_set(subject, item, value + 1);
    }
    return true;
}

bool bench_library_add(struct bench_results *asked, const char *argument)
{
    char *copy = strdup(argument), *rest = copy ? strchr(copy, ',') : NULL;
    bool good = false;
    if (asked->subject_count == BENCH_SUBJECTS_MOST) {
        say_error("--library \"%.128s\" is one too many; accepted: %d", argument,
            BENCH_SUBJECTS_MOST - 1);
        free(copy);
        return false;
    }
    if (rest)
        *rest++ = '\0';
    char *path = copy ? library_path(copy) : NULL;
    if (path) {
        const char *name = strrchr(path, '/');
        struct bench_subject *subject = bench_results_add_subject(asked,
            !strcmp(copy, BENCH_OWN) ? BENCH_OWN
            : name                   ? name + 1
                                     : path,
            path);
        set_build(subject, path);
        good = !rest || set_variables(subject, rest);
    }
    free(path);
    free(copy);
    return good;
}

bool bench_library_label(struct bench_results *asked, const char *label)
{
    if (asked->subject_count < 2) {
        say_error("--label \"%.128s\" is not accepted: no --library is before it", label);
        return false;
    }
    if (!*label || strlen(label) > 40 || !strcmp(label, BENCH_NATIVE)) {
        say_error("--label \"%.128s\" is not accepted; accepted: 1 to 40 characters, not \"%s\"",
            label, BENCH_NATIVE);
        return false;
    }
    struct bench_subject *subject = &asked->subjects[asked->subject_count - 1];
    bench_subject_set_label(subject, label);
    return true;
}
