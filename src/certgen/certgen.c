/* SPDX-License-Identifier: Apache-2.0 */
#include "certgen/certgen.h"

#include "certgen/api_ask.h"
#include "kube/base64.h"
#include "kube/object.h"
#include "kube/url.h"
#include "net/log_line.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes that find another version; jobs that run beside this one are few. */
#define TRIES 5
#define PROOF_BYTES_MIN 16 /* vgpu-scheduler takes no shorter one */

/* The path of a named object, or of its collection where the name is NULL; the caller frees it. */
static char *secret_path(const struct certgen_options *options, const char *name)
{
    char *space = url_escape(options->secret_namespace), *path = NULL;
    char *escaped = name ? url_escape(name) : NULL;
    if (space && !name && asprintf(&path, "/api/v1/namespaces/%s/secrets", space) < 0)
        path = NULL;
    if (space && escaped && asprintf(&path, "/api/v1/namespaces/%s/secrets/%s", space, escaped) < 0)
        path = NULL;
    free(space);
    free(escaped);
    return path;
}

static int ask(const struct certgen_options *options, const char *method, char *path,
    const json_t *body, struct api_answer *ret_answer, struct error *error)
{
    *ret_answer = (struct api_answer){.body = NULL};
    if (!path)
        return error_set(error, ENOMEM, "no memory for a path");
    int result =
        api_ask(options->client, method, path, body, options->deadline_ms, ret_answer, error);
    free(path);
    return result;
}

/* ---- Secrets ---- */

/* An entry's bytes as text of the heap; NULL where it is missing, too long or no text. */
static char *read_entry(const json_t *secret, const char *name)
{
    const char *encoded = object_string(secret, "data", name, NULL);
    char *text = NULL;
    if (encoded && strlen(encoded) <= CERTIFICATE_PEM_MAX && !base64_decode(encoded, &text))
        return text;
    return NULL;
}

static int set_entry(json_t *secret, const char *name, const char *text)
{
    json_t *data = json_object_get(secret, "data");
    char *encoded = NULL;
    if (!json_is_object(data)) {
        data = json_object();
        if (json_object_set_new(secret, "data", data))
            return -ENOMEM;
    }
    int result = base64_encode(text, strlen(text), &encoded);
    if (!result && json_object_set_new(data, name, json_string(encoded)))
        result = -ENOMEM;
    if (encoded)
        explicit_bzero(encoded, strlen(encoded));
    free(encoded);
    return result;
}

static json_t *new_secret(const struct certgen_options *options, const char *name, const char *type)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:{s:s}}}", "apiVersion", "v1", "kind", "Secret",
        "type", type, "metadata", "name", name, "namespace", options->secret_namespace, "labels",
        "app.kubernetes.io/managed-by", "vgpu-certgen");
}

/* The Secret as it is, or as it will be made: *ret_exists tells. */
static int get_secret(const struct certgen_options *options, const char *name, const char *type,
    json_t **ret_secret, bool *ret_exists, struct error *error)
{
    struct api_answer answer;
    int result = ask(options, "GET", secret_path(options, name), NULL, &answer, error);
    if (result && result != -ENOENT) {
        api_answer_finish(&answer);
        return result;
    }
    *ret_exists = !result;
    *ret_secret = result ? new_secret(options, name, type) : json_incref(answer.body);
    api_answer_finish(&answer);
    return *ret_secret ? 0 : error_set(error, ENOMEM, "no memory for Secret %s", name);
}

/* Returns -EEXIST where another version is there by now. */
static int put_secret(const struct certgen_options *options, const char *name, bool exists,
    const json_t *secret, struct error *error)
{
    struct api_answer answer;
    int result = ask(options, exists ? "PUT" : "POST", secret_path(options, exists ? name : NULL),
        secret, &answer, error);
    api_answer_finish(&answer);
    return result;
}

/* ---- The proof key ---- */

static int make_proof(char text[CERTGEN_PROOF_BYTES * 2 + 1], struct error *error)
{
    unsigned char bytes[CERTGEN_PROOF_BYTES];
    int result = gnutls_rnd(GNUTLS_RND_KEY, bytes, sizeof(bytes));
    if (result)
        return error_set(error, EIO, "no random numbers: %s", gnutls_strerror(result));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof(bytes));
    return 0;
}

/* Of a base64 text. */
static size_t decoded_bytes(const char *encoded)
{
    size_t length = strlen(encoded), bytes = length / 4 * 3;
    for (size_t i = length; i > 0 && encoded[i - 1] == '=' && bytes; i--)
        bytes--;
    return bytes;
}

/* A key that is there stays, whatever it is: proofs that were made with it must hold. */
static int check_proof(
    const struct certgen_options *options, const char *encoded, struct error *error)
{
    if (decoded_bytes(encoded) < PROOF_BYTES_MIN)
        return error_set(error, EINVAL,
            "Secret %s/%s has a key of less than %d bytes: remove its entry \"%s\" for a new one",
            options->secret_namespace, options->proof_secret, PROOF_BYTES_MIN, CERTGEN_PROOF_ENTRY);
    log_line(LOG_LINE_INFO, "certgen: Secret %s/%s keeps its key", options->secret_namespace,
        options->proof_secret);
    return 0;
}

static int try_proof(const struct certgen_options *options, struct error *error)
{
    char text[CERTGEN_PROOF_BYTES * 2 + 1];
    json_t *secret;
    bool exists;
    int result = get_secret(options, options->proof_secret, "Opaque", &secret, &exists, error);
    if (result)
        return result;
    const char *encoded = object_string(secret, "data", CERTGEN_PROOF_ENTRY, NULL);
    if (encoded) {
        result = check_proof(options, encoded, error);
        json_decref(secret);
        return result;
    }
    result = make_proof(text, error);
    if (!result && set_entry(secret, CERTGEN_PROOF_ENTRY, text))
        result = error_set(error, ENOMEM, "no memory for a key");
    explicit_bzero(text, sizeof(text));
    if (!result)
        result = put_secret(options, options->proof_secret, exists, secret, error);
    json_decref(secret);
    if (!result)
        log_line(LOG_LINE_INFO, "certgen: Secret %s/%s has a new key", options->secret_namespace,
            options->proof_secret);
    return result;
}

/* ---- Webhooks ---- */

static char *webhook_path(const char *kind, const char *name)
{
    char *escaped = url_escape(name), *path = NULL;
    if (escaped &&
        asprintf(&path, "/apis/admissionregistration.k8s.io/v1/%s/%s", kind, escaped) < 0)
        path = NULL;
    free(escaped);
    return path;
}

/* Returns how many webhooks have another CA than that now, or -ENOMEM. */
static int set_bundle(json_t *configuration, const char *encoded)
{
    json_t *webhook;
    size_t i;
    int changed = 0;
    json_array_foreach(json_object_get(configuration, "webhooks"), i, webhook)
    {
        json_t *client = json_object_get(webhook, "clientConfig");
        const char *old = object_string(client, "caBundle", NULL);
        if (!json_is_object(client) || (old && !strcmp(old, encoded)))
            continue;
        if (json_object_set_new(client, "caBundle", json_string(encoded)))
            return -ENOMEM;
        changed++;
    }
    return changed;
}

static int try_webhook(const struct certgen_options *options, const char *kind, const char *name,
    const char *encoded, struct error *error)
{
    struct api_answer answer, written;
    int result = ask(options, "GET", webhook_path(kind, name), NULL, &answer, error);
    if (result == -ENOENT && options->webhooks_may_be_missing) {
        log_line(LOG_LINE_INFO, "certgen: %s %s is not there yet", kind, name);
        api_answer_finish(&answer);
        return 0;
    }
    int changed = result ? 0 : set_bundle(answer.body, encoded);
    if (changed < 0)
        result = error_set(error, ENOMEM, "no memory for %s %s", kind, name);
    if (changed > 0) {
        result = ask(options, "PUT", webhook_path(kind, name), answer.body, &written, error);
        api_answer_finish(&written);
    }
    api_answer_finish(&answer);
    if (!result)
        log_line(LOG_LINE_INFO, "certgen: %s %s %s", kind, name,
            changed ? "trusts the certificate now" : "trusts the certificate");
    return result;
}

static int set_webhook(const struct certgen_options *options, const char *kind, const char *name,
    const char *encoded, struct error *error)
{
    int result = *name ? -EEXIST : 0;
    for (int i = 0; i < TRIES && result == -EEXIST; i++)
        result = try_webhook(options, kind, name, encoded, error);
    return result;
}

static int set_webhooks(const struct certgen_options *options, const char *ca, struct error *error)
{
    char *encoded = NULL;
    int result = base64_encode(ca, strlen(ca), &encoded);
    if (result)
        return error_set(error, ENOMEM, "no memory for a CA");
    result = set_webhook(
        options, "mutatingwebhookconfigurations", options->mutating_webhook, encoded, error);
    if (!result)
        result = set_webhook(options, "validatingwebhookconfigurations",
            options->validating_webhook, encoded, error);
    free(encoded);
    return result;
}

/* ---- The certificate ---- */

static struct certificate read_certificate(const json_t *secret)
{
    return (struct certificate){.ca = read_entry(secret, "ca.crt"),
        .chain = read_entry(secret, "tls.crt"),
        .key = read_entry(secret, "tls.key")};
}

static int write_certificate(const struct certgen_options *options, json_t *secret, bool exists,
    const struct certificate *certificate, struct error *error)
{
    int result = set_entry(secret, "ca.crt", certificate->ca);
    if (!result)
        result = set_entry(secret, "tls.crt", certificate->chain);
    if (!result)
        result = set_entry(secret, "tls.key", certificate->key);
    if (result)
        return error_set(error, ENOMEM, "no memory for Secret %s", options->tls_secret);
    result = put_secret(options, options->tls_secret, exists, secret, error);
    if (!result)
        log_line(LOG_LINE_INFO, "certgen: Secret %s/%s has a new certificate, for %s and %zu more",
            options->secret_namespace, options->tls_secret, options->names.names[0],
            options->names.count - 1);
    return result;
}

static int renew(const struct certgen_options *options, time_t now, json_t *secret, bool exists,
    const struct certificate *former, struct error *error)
{
    struct certificate made = {.ca = NULL};
    int result = certificate_make(&options->names, now, options->valid_s, former->ca, &made, error);
    if (!result)
        result = set_webhooks(options, made.ca, error);
    if (!result)
        result = write_certificate(options, secret, exists, &made, error);
    certificate_finish(&made);
    return result;
}

static int try_certificate(const struct certgen_options *options, time_t now, struct error *error)
{
    json_t *secret;
    bool exists;
    struct error why = {.text = ""};
    int result =
        get_secret(options, options->tls_secret, "kubernetes.io/tls", &secret, &exists, error);
    if (result)
        return result;
    struct certificate former = read_certificate(secret);
    if (certificate_check(&former, &options->names, now, options->renew_s, &why) || !former.ca) {
        if (exists)
            log_line(LOG_LINE_INFO, "certgen: the certificate of Secret %s/%s is replaced: %s",
                options->secret_namespace, options->tls_secret, why.text);
        result = renew(options, now, secret, exists, &former, error);
    } else {
        log_line(LOG_LINE_INFO, "certgen: Secret %s/%s keeps its certificate",
            options->secret_namespace, options->tls_secret);
        result = set_webhooks(options, former.ca, error);
    }
    certificate_finish(&former);
    json_decref(secret);
    return result;
}

int certgen_run(const struct certgen_options *options, time_t now, struct error *error)
{
    int result = *options->tls_secret ? -EEXIST : 0;
    for (int i = 0; i < TRIES && result == -EEXIST; i++)
        result = try_certificate(options, now, error);
    if (result)
        return result;
    result = *options->proof_secret ? -EEXIST : 0;
    for (int i = 0; i < TRIES && result == -EEXIST; i++)
        result = try_proof(options, error);
    return result;
}
