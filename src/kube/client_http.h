/* SPDX-License-Identifier: Apache-2.0 */
/* Between client.c and HTTP: the request's line and headers, and what an answer says. */
#ifndef VGPU_KUBE_CLIENT_HTTP_H
#define VGPU_KUBE_CLIENT_HTTP_H

#include "kube/auth.h"
#include "net/http_client.h"

#include <jansson.h>
#include <stdbool.h>

struct client_line {
    char *method, *url, *content_type; /* the header, or NULL */
    const char *path;                  /* in the URL */
};

/* Returns 0 or -ENOMEM; to be finished either way. */
int client_line_init(struct client_line *line, const char *server, const char *method,
    const char *path, const char *content_type, bool has_body) __attribute__((warn_unused_result));
void client_line_finish(struct client_line *line);

/* Adds method, URL, headers with the token of now, and TLS to the request, and starts it. */
struct http_call *client_send(struct http_client *http, struct kube_auth *auth,
    const char *user_agent, const struct client_line *line, struct http_request *request);

/* The body as JSON, a new reference; NULL where it is not JSON or was not received whole. */
json_t *client_parse(const struct http_reply *reply);

/* One line about the answer into `text` (ERROR_TEXT_BYTES): what failed, or the status with the
 * message of the Status object; "" for a good one. */
void client_describe(
    const struct client_line *line, const struct http_reply *reply, const json_t *body, char *text);

#endif
