/* SPDX-License-Identifier: Apache-2.0 */
/* Certificate and key of a TLS server, from files that are read again as they change: cert-manager
 * and certgen renew them while the daemon runs. One thread. */
#ifndef VGPU_NET_TLS_SERVER_H
#define VGPU_NET_TLS_SERVER_H

#include "net/error.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

/* Certificates of a chain. */
#define TLS_SERVER_CHAIN_MAX 8

struct tls_server;

/* Reads both (PEM); NULL with the error where they cannot be read or do not belong together. */
struct tls_server *tls_server_create(
    const char *certificate_path, const char *key_path, struct error *error);
void tls_server_destroy(struct tls_server *server);

/* Certificates and key as of now, as a gnutls_certificate_retrieve_function3 gives them with the
 * flag GNUTLS_CERT_RETR_DEINIT_ALL: GnuTLS frees them. Files that are unreadable just now, or do
 * not belong together (one has been replaced, the other not yet), leave the former ones in use.
 * Returns 0 or a GnuTLS error. */
int tls_server_retrieve(struct tls_server *server, gnutls_pcert_st **ret_chain,
    unsigned *ret_length, gnutls_privkey_t *ret_key) __attribute__((warn_unused_result));

#endif
