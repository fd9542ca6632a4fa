/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of src/scheduler. */
#ifndef VGPU_SCHEDULER_SCHEDULER_PARTS_H
#define VGPU_SCHEDULER_SCHEDULER_PARTS_H

#include "kube/watch.h"
#include "schedule/choice.h"
#include "schedule/flight.h"
#include "schedule/table.h"
#include "schedule/usage.h"
#include "scheduler/leader.h"
#include "scheduler/scheduler.h"

#include <event2/event.h>
#include <sys/queue.h>

/* After which a reservation, or what HAMi's scheduler has named, ends: kube-scheduler binds within
 * seconds, but volumes may take long; a bind without a reservation fits again. */
#define RESERVATION_NS (INT64_C(300) * 1000000000)
/* Within which the watch should show a binding. */
#define SHOWN_NS (INT64_C(30) * 1000000000)
/* For all requests of one bind; kube-scheduler gives up after 30 s. */
#define BIND_MS 20000
/* Binds that wait at once; kube-scheduler tries others again. */
#define BINDS_WAITING_MAX 512
/* For the requests of a bind that has waited for a node lock. */
#define LOCKED_BIND_NS (INT64_C(1000000000))
#define SCHEDULER_NOT_READY "the scheduler has not read the cluster yet"

#define SCHEDULER_ABANDONED "another scheduler leads now"

#define ANSWER_TYPE "application/json"

/* Merge patches and the like. */
#define KEY_PLUGIN "vgpu.io/plugin"

enum { WATCH_NODES, WATCH_PODS, WATCH_QUOTAS, WATCH_COUNT };

/* What is known of a node besides its devices. */
struct scheduler_node {
    char *name;
    uint64_t digest; /* of what node_read reads */
    bool usable;
    bool is_ours;   /* its plugin is vgpu's: binds need no lock */
    bool is_locked; /* it has HAMi's lock */
    uint64_t lock_digest;
};

struct scheduler_watch {
    struct scheduler *scheduler;
    struct kube_watch *watch;
    const char *what;
    bool synced;
};

/* What the label of this Pod says. */
struct scheduler_role {
    struct kube_call *call;
    bool leads, is_told;
    int64_t again_ns;
};

struct scheduler {
    struct scheduler_options options;
    struct usage *usage;
    struct choice choice;
    struct table nodes; /* of struct scheduler_node */
    struct table asked; /* by UID: what Pods that are not bound ask for (asked.c) */
    struct scheduler_watch watches[WATCH_COUNT];
    struct leader *leader; /* NULL: it always leads */
    struct scheduler_role role;
    struct event *anew; /* all is read anew */
    bool anew_failed;   /* the next tick tries again */
    struct event *timer;
    struct kube_call *overdue; /* the Pod that is being asked for */
    char *overdue_uid;
    struct flights *flights;
    TAILQ_HEAD(, bind) binds; /* under way, as they came */
    size_t binds_waiting;
    struct event *wakeup; /* those that wait are looked at */
    struct patch *patches;
    struct table raises; /* of struct raise, by UID: wishes of running Pods for more */
    unsigned long filters, filters_failed, binds_done, binds_failed, refits, reviews, denials;
};

int64_t scheduler_now_ns(void); /* CLOCK_MONOTONIC */

/* Takes the text; NULL: an answer of status 500. */
void scheduler_answer(struct http_exchange *exchange, char *body);

/* An event of a Pod. */
void scheduler_tell(struct scheduler *scheduler, const char *pod_namespace, const char *name,
    const char *uid, const char *reason, const char *message, bool is_warning);

/* What a Pod with these devices on the node has in its annotations; the caller releases it. With a
 * bind phase where `binding`. NULL without memory. */
json_t *scheduler_annotations(const struct scheduler *scheduler, const char *uid, const char *node,
    const char *devices, bool binding);

/* "/api/v1/namespaces/NS/pods/NAME" and "<rest>", or "/api/v1/nodes/NAME"; the caller frees it. */
char *scheduler_pod_path(const char *pod_namespace, const char *name, const char *rest);
char *scheduler_node_path(const char *name);

/* Chooses among the names and reserves. Returns 0: choice.best tells whether it fits; or a negative
 * errno with the error. */
int scheduler_choose(struct scheduler *scheduler, const struct ask *ask, const char *const *names,
    size_t count, uint64_t *ret_generation, struct error *error)
    __attribute__((warn_unused_result));

/* Takes a Pod as the watch, or a GET, shows it. */
void scheduler_take_pod(struct scheduler *scheduler, const json_t *pod);

/* asked.c: a Pod as the API server has it, one that is gone, and whether a reservation is what the
 * Pod asks for, by what was taken last; false where it is not known. */
void asked_take(struct scheduler *scheduler, const json_t *pod);
void asked_forget(struct scheduler *scheduler, const char *uid);
void asked_forget_all(struct scheduler *scheduler);
bool asked_matches(const struct scheduler *scheduler, const struct usage_pod *reserved);
/* When a Pod was created, in seconds since 1970; 0: not known. */
int64_t asked_creation(const json_t *pod);
int64_t asked_created(const struct scheduler *scheduler, const char *uid);

/* Makes the label of this Pod say whether it leads. */
void scheduler_tell_role(struct scheduler *scheduler);

/* Lets binds that wait be looked at soon. */
void scheduler_wake(struct scheduler *scheduler);
/* `all`: also those for which nothing is known to have changed. */
void scheduler_look_at_binds(struct scheduler *scheduler, bool all);

/* raise.c */
/* Whether the Pod's wish for more than it was given is granted, or is being granted. */
bool scheduler_is_raised(struct scheduler *scheduler, const json_t *pod);
/* Grants the wish of a Pod that was observed, where there is room. */
void scheduler_look_at_wish(struct scheduler *scheduler, const json_t *pod);
/* Wishes that had to wait, or were refused a while ago. */
void scheduler_look_at_raises(struct scheduler *scheduler);
void scheduler_forget_raise(struct scheduler *scheduler, const char *uid);
void scheduler_cancel_raises(struct scheduler *scheduler);
/* Another scheduler leads: what is under way ends at once, with answers. */
void scheduler_abandon_binds(struct scheduler *scheduler);
void scheduler_abandon_patches(struct scheduler *scheduler);

/* Ends what is under way, without answers. */
void scheduler_cancel_binds(struct scheduler *scheduler);
void scheduler_cancel_patches(struct scheduler *scheduler);

#endif
