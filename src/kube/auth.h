/* SPDX-License-Identifier: Apache-2.0 */
/* Where the API server is and how this process proves who it is: the files of a Pod's service
 * account, or a kubeconfig. Tokens and certificates are read again as their files change. One
 * thread; files are read with blocking calls (they are small and local). */
#ifndef VGPU_KUBE_AUTH_H
#define VGPU_KUBE_AUTH_H

#include "net/error.h"
#include "net/tls_files.h"

#define AUTH_TOKEN_BYTES_MAX 65536
#define AUTH_SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

struct kube_auth;

/* `kubeconfig` where it is not NULL; else the file that KUBECONFIG names; else the service account
 * (`directory`, NULL: AUTH_SERVICE_ACCOUNT; the server is KUBERNETES_SERVICE_HOST and _PORT).
 * Returns NULL with one line in `error`. */
struct kube_auth *kube_auth_create(
    const char *kubeconfig, const char *directory, struct error *error);
void kube_auth_destroy(struct kube_auth *auth);

/* "https://10.96.0.1:443", without a slash at the end. */
const char *kube_auth_server(const struct kube_auth *auth);

/* The namespace of the context or of the service account; "default" where none is named. */
const char *kube_auth_namespace(const struct kube_auth *auth);

/* The bearer token, NULL where there is none; valid until the next call. Looks whether the token's
 * file has changed. Where that cannot be read just now, the token stays. */
const char *kube_auth_token(struct kube_auth *auth);

/* Reads the token's file again, changed or not: the server has refused the token. */
void kube_auth_reload(struct kube_auth *auth);

/* For http_request.tls. */
struct tls_files *kube_auth_tls(const struct kube_auth *auth);

#endif
