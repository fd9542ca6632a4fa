/* SPDX-License-Identifier: Apache-2.0 */
/* What is said to a request: a code and one line, made where it is decided. */
#ifndef VGPU_ADMISSION_VERDICT_H
#define VGPU_ADMISSION_VERDICT_H

#include <stdbool.h>

/* Enough for three quoted texts, so that none is cut inside a character. */
#define VERDICT_MESSAGE_BYTES 1024

/* Codes of HTTP, as the API server passes them on to its client. */
enum verdict_code {
    VERDICT_ALLOWED = 200,
    VERDICT_UNREADABLE = 400,
    VERDICT_DENIED = 403,
    VERDICT_FAILED = 500,
};

struct verdict {
    enum verdict_code code;
    char message[VERDICT_MESSAGE_BYTES]; /* "": none */
};

/* Sets both; what comes from a Pod goes through verdict_quote first. Returns whether the code
 * allows. */
__attribute__((format(printf, 3, 4))) bool verdict_set(
    struct verdict *verdict, enum verdict_code code, const char *format, ...);

/* A text of a stranger on its way into a message: control characters escaped, cut. */
struct verdict_quoted {
    char text[160];
};
struct verdict_quoted verdict_quote(const char *text);

#endif
