/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls_server.h"

#include "net/file_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PEM_BYTES_MAX (1 << 20)

struct pem {
    char *path, *text;
    size_t bytes;
    struct file_stamp stamp;
};

struct tls_server {
    struct pem certificate, key;
};

static void pem_finish(struct pem *pem)
{
    if (pem->text)
        explicit_bzero(pem->text, pem->bytes);
    free(pem->text);
    free(pem->path);
    *pem = (struct pem){0};
}

static int pem_read(const char *path, struct pem *ret_pem, struct error *error)
{
    struct pem pem = {.path = strdup(path)};
    if (!pem.path)
        return error_set(error, ENOMEM, "no memory for a certificate");
    int failure = file_read(path, PEM_BYTES_MAX, &pem.text, &pem.bytes, &pem.stamp, error);
    if (failure) {
        pem_finish(&pem);
        return failure;
    }
    *ret_pem = pem;
    return 0;
}

static gnutls_datum_t datum_of(const struct pem *pem)
{
    return (gnutls_datum_t){(unsigned char *)pem->text, (unsigned)pem->bytes};
}

/* Whether GnuTLS takes them, and takes them as a pair. */
static int check_pair(const struct pem *certificate, const struct pem *key, struct error *error)
{
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t chain = datum_of(certificate), secret = datum_of(key);
    if (gnutls_certificate_allocate_credentials(&credentials))
        return error_set(error, ENOMEM, "no memory for a certificate");
    int result =
        gnutls_certificate_set_x509_key_mem(credentials, &chain, &secret, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(credentials);
    if (result < 0)
        return error_set(error, EINVAL, "%s and %s are no certificate with its key: %s",
            certificate->path, key->path, gnutls_strerror(result));
    return 0;
}

static int read_pair(struct tls_server *server, const char *certificate_path, const char *key_path,
    struct error *error)
{
    struct pem certificate = {0}, key = {0};
    int failure = pem_read(certificate_path, &certificate, error);
    if (!failure)
        failure = pem_read(key_path, &key, error);
    if (!failure)
        failure = check_pair(&certificate, &key, error);
    if (failure) {
        pem_finish(&certificate);
        pem_finish(&key);
        return failure;
    }
    struct tls_server former = *server;
    *server = (struct tls_server){certificate, key};
    pem_finish(&former.certificate);
    pem_finish(&former.key);
    return 0;
}

struct tls_server *tls_server_create(
    const char *certificate_path, const char *key_path, struct error *error)
{
    struct tls_server *server = calloc(1, sizeof(*server));
    if (!server) {
        error_set(error, ENOMEM, "no memory for a certificate");
        return NULL;
    }
    if (read_pair(server, certificate_path, key_path, error)) {
        free(server);
        return NULL;
    }
    return server;
}

void tls_server_destroy(struct tls_server *server)
{
    if (!server)
        return;
    pem_finish(&server->certificate);
    pem_finish(&server->key);
    free(server);
}

static int make_key(const struct pem *pem, gnutls_privkey_t *ret_key)
{
    gnutls_datum_t data = datum_of(pem);
    gnutls_privkey_t key;
    int result = gnutls_privkey_init(&key);
    if (result)
        return result;
    result = gnutls_privkey_import_x509_raw(key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (result)
        gnutls_privkey_deinit(key);
    else
        *ret_key = key;
    return result;
}

int tls_server_retrieve(struct tls_server *server, gnutls_pcert_st **ret_chain,
    unsigned *ret_length, gnutls_privkey_t *ret_key)
{
    if (file_stamp_differs(&server->certificate.stamp, server->certificate.path) ||
        file_stamp_differs(&server->key.stamp, server->key.path))
        (void)!read_pair(server, server->certificate.path, server->key.path, NULL);
    unsigned length = TLS_SERVER_CHAIN_MAX;
    gnutls_datum_t data = datum_of(&server->certificate);
    gnutls_pcert_st *chain = gnutls_malloc(length * sizeof(*chain));
    if (!chain)
        return GNUTLS_E_MEMORY_ERROR;
    int result = gnutls_pcert_list_import_x509_raw(chain, &length, &data, GNUTLS_X509_FMT_PEM, 0);
    if (result < 0) {
        gnutls_free(chain);
        return result;
    }
    result = make_key(&server->key, ret_key);
    if (result) {
        for (unsigned i = 0; i < length; i++)
            gnutls_pcert_deinit(&chain[i]);
        gnutls_free(chain);
        return result;
    }
    *ret_chain = chain;
    *ret_length = length;
    return 0;
}
