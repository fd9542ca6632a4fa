/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu-certgen does to the cluster: the Secrets of the webhook's server, and the CA in the
 * webhooks' configurations. */
#ifndef VGPU_CERTGEN_CERTGEN_H
#define VGPU_CERTGEN_CERTGEN_H

#include "certgen/certificate.h"
#include "kube/client.h"
#include "net/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Keys of the proofs are this many random bytes, as hexadecimal digits. */
#define CERTGEN_PROOF_BYTES 32
#define CERTGEN_PROOF_ENTRY "key"

/* All is the caller's; "" leaves a part out. */
struct certgen_options {
    struct kube_client *client;
    const char *secret_namespace;
    const char *tls_secret; /* tls.crt, tls.key and ca.crt */
    const char *proof_secret;
    struct certificate_names names;
    int64_t valid_s, renew_s; /* of a new certificate; of one that is kept, from now on */
    const char *mutating_webhook, *validating_webhook;
    bool webhooks_may_be_missing;
    unsigned deadline_ms; /* of each request */
};

/* In this order, so that the API server trusts a server at each instant: the certificate is read or
 * made; the webhooks get its CA bundle (which has the former CA, too); the TLS Secret is written
 * where it has changed; the proof key is made where there is none. Each write is of the version
 * that was read, and done again where another one came between. Returns 0, or -errno with one line
 * of what failed; what was done until then stays, and the next run goes on from there. */
int certgen_run(const struct certgen_options *options, time_t now, struct error *error)
    __attribute__((warn_unused_result));

#endif
