/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/auth.h"

#include "kube/kubeconfig.h"
#include "net/file_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kube_auth {
    char *server, *namespace_name;
    char *token, *token_path;
    struct file_stamp token_stamp;
    struct tls_files *tls;
};

/* Takes the token out of a file's text: without blanks and line ends around it. What a header
 * cannot carry is refused. */
static int take_token(struct kube_auth *auth, char *text, struct error *error)
{
    size_t from = strspn(text, " \t\r\n"), length = strlen(text);
    while (length > from && strchr(" \t\r\n", text[length - 1]))
        length--;
    if (length == from)
        return error_set(error, EINVAL, "%s is empty", auth->token_path);
    for (size_t i = from; i < length; i++) {
        if (text[i] <= ' ' || text[i] == 0x7f)
            return error_set(error, EINVAL, "%s is not a token", auth->token_path);
    }
    char *token = strndup(text + from, length - from);
    if (!token)
        return error_set(error, ENOMEM, "no memory for a token");
    if (auth->token)
        explicit_bzero(auth->token, strlen(auth->token));
    free(auth->token);
    auth->token = token;
    return 0;
}

static int read_token(struct kube_auth *auth, struct error *error)
{
    char *text;
    size_t bytes;
    struct file_stamp stamp;
    int failure = file_read(auth->token_path, AUTH_TOKEN_BYTES_MAX, &text, &bytes, &stamp, error);
    if (failure)
        return failure;
    failure = take_token(auth, text, error);
    explicit_bzero(text, bytes);
    free(text);
    if (!failure)
        auth->token_stamp = stamp;
    return failure;
}

/* Joins into the heap; NULL: no memory. A relative path is one of the directory. */
static char *join(const char *directory, const char *path)
{
    char *joined;
    if (*path == '/' || !*directory)
        return strdup(path);
    return asprintf(&joined, "%s/%s", directory, path) < 0 ? NULL : joined;
}

static int no_memory(struct error *error)
{
    return error_set(error, ENOMEM, "no memory for the API server's address");
}

static int read_namespace(struct kube_auth *auth, const char *directory)
{
    char *path = join(directory, "namespace"), *text = NULL;
    size_t bytes;
    if (!path)
        return -ENOMEM;
    if (!file_read(path, 253, &text, &bytes, NULL, NULL) && bytes)
        auth->namespace_name = strndup(text, strcspn(text, " \t\r\n"));
    free(text);
    free(path);
    return 0;
}

static int set_in_cluster(struct kube_auth *auth, const char *directory, struct error *error)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host || !port || !*port)
        return error_set(error, ENOENT,
            "no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set (this "
            "is no Pod), and neither is KUBECONFIG");
    if (asprintf(&auth->server, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host,
            port) < 0) {
        auth->server = NULL;
        return no_memory(error);
    }
    char *ca = join(directory, "ca.crt");
    auth->token_path = join(directory, "token");
    int failure = ca && auth->token_path && !read_namespace(auth, directory) ? 0 : no_memory(error);
    if (!failure)
        failure = read_token(auth, error);
    if (!failure) {
        auth->tls = tls_files_create(&(struct tls_source){.path = ca}, NULL, NULL, error);
        failure = auth->tls ? 0 : -EINVAL;
    }
    free(ca);
    return failure;
}

/* Data win over a path, as in client-go. */
static struct tls_source source_of(const char *path, const char *data)
{
    return data ? (struct tls_source){.data = data, .bytes = strlen(data)}
                : (struct tls_source){.path = path};
}

static int resolve(const char *directory, char **path)
{
    if (!*path)
        return 0;
    char *joined = join(directory, *path);
    free(*path);
    *path = joined;
    return joined ? 0 : -ENOMEM;
}

static int apply_config(
    struct kube_auth *auth, struct kubeconfig *config, const char *directory, struct error *error)
{
    if (resolve(directory, &config->ca_path) || resolve(directory, &config->token_path) ||
        resolve(directory, &config->certificate_path) || resolve(directory, &config->key_path))
        return no_memory(error);
    size_t length = strlen(config->server);
    while (length && config->server[length - 1] == '/')
        config->server[--length] = 0;
    struct tls_source ca = source_of(config->ca_path, config->ca_data);
    struct tls_source certificate = source_of(config->certificate_path, config->certificate_data);
    struct tls_source key = source_of(config->key_path, config->key_data);
    auth->tls = tls_files_create(&ca, &certificate, &key, error);
    if (!auth->tls)
        return -EINVAL;
    auth->server = config->server;
    auth->namespace_name = config->namespace_name;
    auth->token_path = config->token_path;
    auth->token = config->token;
    config->server = config->namespace_name = config->token_path = config->token = NULL;
    return auth->token_path ? read_token(auth, error) : 0;
}

static int set_kubeconfig(struct kube_auth *auth, const char *path, struct error *error)
{
    struct kubeconfig config = {0};
    char *text = NULL, *directory = strdup(path);
    size_t bytes = 0;
    if (!directory)
        return no_memory(error);
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory] = 0;
    else
        *directory = 0;
    int failure = file_read(path, KUBECONFIG_BYTES_MAX, &text, &bytes, NULL, error);
    if (!failure)
        failure = kubeconfig_parse(text, bytes, &config, error);
    if (!failure)
        failure = apply_config(auth, &config, directory, error);
    kubeconfig_finish(&config);
    if (text)
        explicit_bzero(text, bytes);
    free(text);
    free(directory);
    return failure;
}

struct kube_auth *kube_auth_create(
    const char *kubeconfig, const char *directory, struct error *error)
{
    struct kube_auth *auth = calloc(1, sizeof(*auth));
    const char *named = getenv("KUBECONFIG");
    int failure = 0;
    if (!auth)
        failure = no_memory(error);
    else if (!kubeconfig && named && strchr(named, ':'))
        failure = error_set(error, EINVAL,
            "KUBECONFIG \"%.150s\" lists several files: that is not supported; accepted: one path",
            named);
    else if (kubeconfig || (named && *named))
        failure = set_kubeconfig(auth, kubeconfig ? kubeconfig : named, error);
    else
        failure = set_in_cluster(auth, directory ? directory : AUTH_SERVICE_ACCOUNT, error);
    if (failure) {
        kube_auth_destroy(auth);
        return NULL;
    }
    return auth;
}

void kube_auth_destroy(struct kube_auth *auth)
{
    if (!auth)
        return;
    if (auth->token)
        explicit_bzero(auth->token, strlen(auth->token));
    free(auth->server);
    free(auth->namespace_name);
    free(auth->token);
    free(auth->token_path);
    tls_files_destroy(auth->tls);
    free(auth);
}

const char *kube_auth_server(const struct kube_auth *auth)
{
    return auth->server;
}

const char *kube_auth_namespace(const struct kube_auth *auth)
{
    return auth->namespace_name ? auth->namespace_name : "default";
}

const char *kube_auth_token(struct kube_auth *auth)
{
    if (auth->token_path && file_stamp_differs(&auth->token_stamp, auth->token_path))
        kube_auth_reload(auth);
    return auth->token;
}

void kube_auth_reload(struct kube_auth *auth)
{
    if (auth->token_path)
        (void)!read_token(auth, NULL);
}

struct tls_files *kube_auth_tls(const struct kube_auth *auth)
{
    return auth->tls;
}
