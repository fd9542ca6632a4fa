/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a URL. Pure. */
#ifndef VGPU_KUBE_URL_H
#define VGPU_KUBE_URL_H

/* The text as a part of a path or a value of a query: all but letters, digits and -._~ as %XX. On
 * the heap; NULL: no memory. */
char *url_escape(const char *text);

#endif
