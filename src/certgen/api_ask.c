/* SPDX-License-Identifier: Apache-2.0 */
#include "certgen/api_ask.h"

#include "net/log_line.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <string.h>

struct asking {
    struct event_base *base;
    bool is_done;
    struct api_answer answer;
    char text[ERROR_TEXT_BYTES];
};

void api_answer_finish(struct api_answer *answer)
{
    json_decref(answer->body);
    *answer = (struct api_answer){.body = NULL};
}

static void on_done(void *context, const struct kube_reply *reply)
{
    struct asking *asking = context;
    asking->is_done = true;
    asking->answer.status = reply->status;
    asking->answer.body = json_incref((json_t *)reply->body);
    snprintf(asking->text, sizeof(asking->text), "%s", reply->text);
    event_base_loopbreak(asking->base);
}

static void on_retry(void *context, const char *text, unsigned wait_ms)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "certgen: %s; again in %u ms", text, wait_ms);
}

static int code_of(int status)
{
    switch (status) {
    case 401:
    case 403:
        return EACCES;
    case 404:
        return ENOENT;
    case 409:
        return EEXIST;
    default:
        return !status || status >= 500 ? ETIMEDOUT : EINVAL;
    }
}

int api_ask(struct kube_client *client, const char *method, const char *path, const json_t *body,
    unsigned deadline_ms, struct api_answer *ret_answer, struct error *error)
{
    struct asking asking = {.base = kube_client_base(client)};
    *ret_answer = (struct api_answer){.body = NULL};
    int result = kube_client_start(client,
        &(struct kube_request){.method = method,
            .path = path,
            .body = body,
            .deadline_ms = deadline_ms,
            .on_done = on_done,
            .on_retry = on_retry,
            .context = &asking},
        NULL);
    if (result)
        return error_set(error, -result, "%s %s: %s", method, path, strerror(-result));
    while (!asking.is_done)
        if (event_base_dispatch(asking.base) && !asking.is_done)
            return error_set(error, EIO, "%s %s: the event loop failed", method, path);
    *ret_answer = asking.answer;
    if (!*asking.text)
        return 0;
    return error_set(error, code_of(asking.answer.status), "%s", asking.text);
}
