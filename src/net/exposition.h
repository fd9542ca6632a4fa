/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus' text format (version 0.0.4), written into memory. */
#ifndef VGPU_NET_EXPOSITION_H
#define VGPU_NET_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPOSITION_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
/* Room for the labels of any sample of a container: names of Kubernetes objects, and a UUID. */
#define EXPOSITION_LABELS_BYTES 1280

/* All zero: empty. */
struct exposition {
    char *text; /* from malloc, with a NUL behind it; NULL: empty */
    size_t bytes, room;
    bool failed;                    /* no memory: what was written afterwards is lost */
    const char *name, *type, *help; /* of the family; type NULL: they are written */
};

/* The labels of a sample, written once and used for several families: `a="x",b="y"`. */
struct exposition_labels {
    char text[EXPOSITION_LABELS_BYTES];
    size_t length;
    bool cut; /* one did not fit: the text is not to be used */
};

/* Adds a label; backslash, quote and newline of the value are escaped. `labels` zeroed: none. */
void exposition_label(struct exposition_labels *labels, const char *name, const char *value);
void exposition_label_number(struct exposition_labels *labels, const char *name, uint64_t value);

/* Begins a family, whose samples follow. Its HELP and TYPE ("gauge" or "counter") come with the
 * first: a family without samples leaves nothing. The texts are constants. */
void exposition_family(
    struct exposition *exposition, const char *name, const char *type, const char *help);

/* A sample of the family that was begun last, with all digits of a whole number below 2^53 and nine
 * behind the point at most. `labels` and `more` are texts of exposition_labels, "" or NULL: none.
 * Nothing where `value` is no number. */
void exposition_sample(
    struct exposition *exposition, const char *labels, const char *more, double value);

void exposition_free(struct exposition *exposition);

#endif
