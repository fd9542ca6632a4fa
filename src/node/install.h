/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the library onto the node by vgpu-install, which never writes over one that is in use. It is
 * run at the start, again after a failure, and every five minutes, so that what was removed from
 * the node comes back. The loop's thread; the program's lines go to the daemon's own stderr. */
#ifndef VGPU_NODE_INSTALL_H
#define VGPU_NODE_INSTALL_H

#include "net/error.h"

struct event_base;
struct install;
struct node_settings;

/* `on_done` once, from the loop, when the library is in place: at once where library_source is "".
 * The settings outlive it. */
struct install *install_create(struct event_base *base, const struct node_settings *settings,
    void (*on_done)(void *context), void *context, struct error *error);
/* A program that runs is left to itself: it is done in a moment, and does no half things. */
void install_destroy(struct install *install);

#endif
