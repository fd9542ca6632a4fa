/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_http.h"

#include "kube/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a path in a line, without its query. */
#define PATH_SHOWN 100

static bool join(char **ret_text, const char *first, const char *second)
{
    if (asprintf(ret_text, "%s%s", first, second) >= 0)
        return true;
    *ret_text = NULL;
    return false;
}

int client_line_init(struct client_line *line, const char *server, const char *method,
    const char *path, const char *content_type, bool has_body)
{
    *line = (struct client_line){.method = strdup(method)};
    if (!line->method || !join(&line->url, server, path))
        return -ENOMEM;
    line->path = line->url + strlen(server);
    if (has_body && !join(&line->content_type,
                        "Content-Type: ", content_type ? content_type : "application/json"))
        return -ENOMEM;
    return 0;
}

void client_line_finish(struct client_line *line)
{
    free(line->method);
    free(line->url);
    free(line->content_type);
    *line = (struct client_line){0};
}

struct http_call *client_send(struct http_client *http, struct kube_auth *auth,
    const char *user_agent, const struct client_line *line, struct http_request *request)
{
    char *agent = NULL, *authorization = NULL;
    struct http_call *call = NULL;
    const char *token = kube_auth_token(auth), *headers[5];
    size_t count = 0;
    bool whole = join(&agent, "User-Agent: ", user_agent) &&
                 (!token || join(&authorization, "Authorization: Bearer ", token));
    headers[count++] = "Accept: application/json";
    headers[count++] = agent;
    if (authorization)
        headers[count++] = authorization;
    if (line->content_type)
        headers[count++] = line->content_type;
    headers[count] = NULL;
    request->method = line->method;
    request->url = line->url;
    request->headers = headers;
    request->tls = kube_auth_tls(auth);
    if (whole)
        call = http_client_start(http, request);
    if (authorization)
        explicit_bzero(authorization, strlen(authorization));
    free(authorization);
    free(agent);
    return call;
}

json_t *client_parse(const struct http_reply *reply)
{
    return reply->failure ? NULL : json_loadb(reply->body, reply->body_bytes, 0, NULL);
}

void client_describe(
    const struct client_line *line, const struct http_reply *reply, const json_t *body, char *text)
{
    struct error error = {0};
    const char *message = object_string(body, "message", NULL);
    int shown = (int)strcspn(line->path, "?");
    shown = shown < PATH_SHOWN ? shown : PATH_SHOWN;
    bool good = reply->status >= 200 && reply->status <= 299;
    if (reply->failure || !reply->status)
        error_set(&error, EIO, "%s %.*s: %s", line->method, shown, line->path, reply->text);
    else if (!good)
        error_set(&error, EIO, "%s %.*s: %d: %s", line->method, shown, line->path, reply->status,
            message ? message : "no message");
    else if (!body)
        error_set(&error, EIO, "%s %.*s: the answer is not JSON", line->method, shown, line->path);
    memcpy(text, error.text, sizeof(error.text));
}
