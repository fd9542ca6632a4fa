/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the daemons as values: a code, and one line that says what failed, made where it
 * failed. The function that decides what to do logs it; the one that fails does not. */
#ifndef VGPU_NET_ERROR_H
#define VGPU_NET_ERROR_H

#define ERROR_TEXT_BYTES 256

struct error {
    char text[ERROR_TEXT_BYTES]; /* one line without a newline; cut where it is too long */
    int code;                    /* an errno value or the area's own code, above 0; 0: no error */
};

/* Fills `error`, which may be NULL, from `code` (above 0) and the text; control characters, which
 * may come from a peer, become '?'. The arguments may be parts of `error->text`, to put context
 * before it. Keeps errno. Returns -code: return error_set(error, EINVAL, "...", ...). */
__attribute__((format(printf, 3, 4))) int error_set(
    struct error *error, int code, const char *format, ...);

#endif
