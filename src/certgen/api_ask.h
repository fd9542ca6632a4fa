/* SPDX-License-Identifier: Apache-2.0 */
/* One request after the other: the loop runs until the answer is there. For programs that do
 * nothing else. */
#ifndef VGPU_CERTGEN_API_ASK_H
#define VGPU_CERTGEN_API_ASK_H

#include "kube/client.h"
#include "net/error.h"

#include <jansson.h>

struct api_answer {
    int status;   /* 0: there was none */
    json_t *body; /* a reference of the caller's; NULL: not JSON */
};
void api_answer_finish(struct api_answer *answer);

/* `body` may be NULL. Tried again by the client's rule until `deadline_ms` are over. Returns 0 for
 * 2xx, or the -errno of what the server said, with one line: -ENOENT for 404, -EEXIST for 409,
 * -EACCES for 401 and 403, -ETIMEDOUT where there is no answer of 2xx or 4xx, -EINVAL for all
 * others. The answer is filled either way. */
int api_ask(struct kube_client *client, const char *method, const char *path, const json_t *body,
    unsigned deadline_ms, struct api_answer *ret_answer, struct error *error)
    __attribute__((warn_unused_result));

#endif
