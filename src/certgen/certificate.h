/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for a webhook's server: a CA that signs one certificate and whose key is thrown away
 * then, and the check whether such a certificate still does. Pure, but for random numbers: the time
 * is an argument. ECDSA on P-256, which every Kubernetes takes. */
#ifndef VGPU_CERTGEN_CERTIFICATE_H
#define VGPU_CERTGEN_CERTIFICATE_H

#include "net/error.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Names in a certificate. */
#define CERTIFICATE_NAMES_MAX 32
/* PEM in one entry of a Secret; a chain of a few certificates has some kilobytes. */
#define CERTIFICATE_PEM_MAX 65536
/* A CA bundle carries the CA of now, and those before it that servers may still use. */
#define CERTIFICATE_CA_MAX 2

/* DNS names or IP addresses, the caller's. */
struct certificate_names {
    const char *names[CERTIFICATE_NAMES_MAX];
    size_t count;
};

/* PEM texts of the heap. */
struct certificate {
    char *ca, *chain, *key;
};
void certificate_finish(struct certificate *certificate); /* the key is wiped */

/* Whether it is a DNS name (RFC 1123, lower case, "*." may stand first) or an IP address: returns
 * 0, or -EINVAL. */
int certificate_check_name(const char *name) __attribute__((warn_unused_result));

/* Valid from an hour before `now`, for clocks that differ, to `seconds` after it. The CA's bundle
 * is the new CA, and of `former` (PEM, may be NULL) the first CA that is still valid, so that a
 * server that has not got the new certificate yet is trusted. Returns 0, or -ENOMEM, -EINVAL,
 * -EIO with one line. */
int certificate_make(const struct certificate_names *names, time_t now, int64_t seconds,
    const char *former, struct certificate *ret_certificate, struct error *error)
    __attribute__((warn_unused_result));

/* Whether the certificate (the first of the chain) is for all of the names, fits its key, is signed
 * by one of the CAs, for servers, and all of it is valid from `now` to `seconds` after it. Returns
 * 0, or -EINVAL with one line that says what is wrong. */
int certificate_check(const struct certificate *certificate, const struct certificate_names *names,
    time_t now, int64_t seconds, struct error *error) __attribute__((warn_unused_result));

#endif
