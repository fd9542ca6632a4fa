/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the allocation share: allocation.c has the records, allocation_serve.c the
 * Allocates, allocation_answer.c their answers, allocation_write.c what the API server is told,
 * allocation_identity.c whose devices are whose (allocation_owner.c reads it from pod-resources'
 * answer, allocation_move.c changes the record), allocation_actual.c which those are,
 * allocation_live.c wishes of running Pods. */
#ifndef VGPU_NODE_ALLOCATION_PARTS_H
#define VGPU_NODE_ALLOCATION_PARTS_H

#include "cluster/allocate_answer.h"
#include "cluster/allocate_candidates.h"
#include "kube/client.h"
#include "net/file_read.h"
#include "node/allocation/allocation_record.h"
#include "node/kubelet.h"
#include "node/pods.h"

#include <event2/event.h>
#include <sys/queue.h>

#define ALLOCATION_RETRY_S 5

struct inventory;
struct kube_events;
struct node_settings;
struct pod_resources;
struct pod_resources_pod;
struct serving;

/* A PATCH of a Pod that is under way. */
struct allocation_job {
    LIST_ENTRY(allocation_job) entry;
    struct allocation *allocation;
    struct kube_call *call;
    bool asks; /* a GET: whether it is gone */
    char uid[];
};

/* A Pod that is gone from the API; its lock is released all the same. */
struct allocation_release {
    LIST_ENTRY(allocation_release) entry;
    char *pod_namespace, *pod_name;
};

/* A Pod that was asked for, served, and has not come by the watch yet. */
struct allocation_stray {
    LIST_ENTRY(allocation_stray) entry;
    struct pods_pod *pod;
};

/* A PreStartContainer that waits for pod-resources. */
struct allocation_waiter {
    LIST_ENTRY(allocation_waiter) entry;
    struct kubelet_call *call;
    struct kubelet_ids devices; /* the call's */
    bool joined;                /* the answer under way may be older than its devices */
};

struct allocation_key {
    char *bytes; /* NULL: none */
    size_t size;
};

/* Of proofs. */
struct allocation_keys {
    struct allocation_key now, former;
    uint64_t taken_ns;       /* when the former was replaced */
    struct file_stamp stamp; /* of the file that was looked at last */
};

struct allocation {
    struct event_base *base;
    const struct node_settings *settings;
    const struct inventory *inventory;
    struct kube_client *client;
    struct pods *pods;
    struct pod_resources *pod_resources;
    struct kube_events *events;
    unsigned remove_after_s, hold_s;
    struct pods_listener listener;

    TAILQ_HEAD(allocation_records, allocation_record) records; /* oldest first */
    uint64_t serial;

    TAILQ_HEAD(, serving) servings; /* the first is worked on */

    LIST_HEAD(, allocation_job) jobs;
    LIST_HEAD(, allocation_stray) strays;
    LIST_HEAD(, allocation_release) releases;
    struct kube_call *lock_call;
    struct event *retry, *sweep, *settle;
    struct event *consent; /* NULL: nothing ever waited for one */
    bool said_refused;     /* the API server refuses our writes */

    LIST_HEAD(, allocation_waiter) waiters;
    bool identifying; /* pod-resources is being asked */
    struct event *identify;
    unsigned identify_s;
    uint64_t look_serial; /* records from here on are newer than the answer that is waited for */

    struct allocation_keys keys;
};

/* allocation.c */
const struct pods_pod *allocation_find_pod(const struct allocation *allocation, const char *uid);
/* Its phase says so. */
bool allocation_pod_has_ended(const struct pods_pod *pod);
/* The Pod of the record has ended or is gone: which says nothing of the devices while another's
 * container may have them. */
bool allocation_has_pod_ended(
    const struct allocation *allocation, const struct allocation_record *record);
/* Nobody has its devices any more, or others have them by an Allocate of their own. */
bool allocation_is_ended(
    const struct allocation *allocation, const struct allocation_record *record);
/* The record of a Pod's slot, or of its failure. */
struct allocation_record *allocation_find_slot(
    const struct allocation *allocation, const char *uid, size_t slot);
struct allocation_record *allocation_find_failure(
    const struct allocation *allocation, const char *uid);
bool allocation_has_pod(const struct allocation *allocation, const char *uid);
/* Takes the record. */
void allocation_add(struct allocation *allocation, struct allocation_record *record);
/* Removes it with its files. */
void allocation_remove(struct allocation *allocation, struct allocation_record *record);
/* Saves it; where that fails, says so: what is in memory counts. */
void allocation_save(struct allocation *allocation, const struct allocation_record *record);
/* Some ms after an answer: writes names of records out, and makes the next grant's files. */
void allocation_settle(struct allocation *allocation);
/* The API server says that there is no such Pod. */
void allocation_pod_gone(
    struct allocation *allocation, const char *pod_namespace, const char *name, const char *uid);
/* What the to-allocate annotation is to be: what containers have got is out, what was taken by
 * mistake in. NULL: no memory, or the annotation is absent or cannot be read. To be freed. */
char *allocation_effective(const struct allocation *allocation, const struct pods_pod *pod);
/* allocation_answer.c */
/* Makes the grant's file say what the record does. */
int allocation_write_grant(const struct allocation *allocation,
    const struct allocation_record *record, struct error *error);
/* Wakes programs that wait by limits that have changed. */
void allocation_wake(const struct allocation *allocation, const struct allocation_record *record);
/* A record for one container's devices, for which there is room; nothing is written yet. -ENOSPC:
 * its devices would be over-committed. */
int allocation_make(struct allocation *allocation, const struct pods_pod *pod,
    const struct allocate_choice *choice, const struct allocate_step *step,
    const struct allocate_request *request, struct allocation_record **ret_record,
    struct error *error) __attribute__((warn_unused_result));
/* The answer for these devices; `record` NULL: for MIG devices, without limits. */
int allocation_answer(const struct allocation *allocation, const struct allocation_record *record,
    bool control_disabled, const struct pod_device *devices, size_t count,
    struct allocate_answer *ret_answer, struct error *error) __attribute__((warn_unused_result));
/* Whether the record's limits and those of all others are within its cards. */
int allocation_check_room(const struct allocation *allocation,
    const struct allocation_record *record, struct error *error)
    __attribute__((warn_unused_result));
/* Memory 0 of a device is all of its card. */
int32_t allocation_memory_of(const struct allocation *allocation, const struct pod_device *device);

/* allocation_actual.c */
/* What the allocated annotation is to be, where containers have other cards than it names, as
 * pod-resources tells; NULL: it is right, or no memory. To be freed. */
char *allocation_actual(const struct allocation *allocation, const struct pods_pod *pod);
/* allocation_key.c */
/* Whether `proof` is right for the text and the Pod, by the key or the one before it. */
bool allocation_is_proven(
    struct allocation *allocation, const char *uid, const char *text, const char *proof);
/* A proof (PROOF_TEXT_BYTES) for that text, if the annotation was proven before. */
bool allocation_prove(
    struct allocation *allocation, const struct pods_pod *pod, const char *text, char *ret_proof);
void allocation_key_forget(struct allocation *allocation);

/* allocation_serve.c */
void allocation_serve_stop(struct allocation *allocation);

/* allocation_candidates.c */
/* Pods as candidates; to be freed by allocation_candidates_free. */
struct allocate_pod *allocation_candidates(struct allocation *allocation,
    struct pods_pod *const *extras, size_t extra_count, size_t *ret_count);
void allocation_candidates_free(struct allocate_pod *candidates, size_t count);

/* allocation_write.c */
void allocation_write(struct allocation *allocation, const char *uid);
void allocation_write_all(struct allocation *allocation);
void allocation_write_lock(struct allocation *allocation);
void allocation_write_stop(struct allocation *allocation);
/* Asks whether the Pod of the record is gone. */
void allocation_ask(struct allocation *allocation, const struct allocation_record *record);
/* All again in ALLOCATION_RETRY_S. */
void allocation_retry(struct allocation *allocation);

/* allocation_identity.c */
void allocation_identity_start(struct allocation *allocation);
void allocation_identity_stop(struct allocation *allocation);
/* The Pod has ended or is gone: whether its devices were another's is asked for. */
void allocation_identity_ended(struct allocation *allocation, const char *uid);

/* allocation_owner.c */
enum allocation_owner_kind {
    ALLOCATION_OWNER_NOBODY,   /* no container of a living Pod has them */
    ALLOCATION_OWNER_UNKNOWN,  /* a Pod of which the API server has not told */
    ALLOCATION_OWNER_NAMESAKE, /* the record's Pod, or a later one with its name */
    ALLOCATION_OWNER_POD,
};

/* Who has a record's devices. */
struct allocation_owner {
    enum allocation_owner_kind kind;
    const struct pods_pod *pod; /* of the last kind: valid until the node's Pods change */
    size_t container;           /* of its view */
    const char *space, *name;   /* pod-resources' */
};

/* Looks in an answer of pod-resources. */
void allocation_find_owner(const struct allocation *allocation,
    const struct allocation_record *record, const struct pod_resources_pod *pods, size_t count,
    struct allocation_owner *ret_owner);

/* allocation_move.c */
/* A record that was another container's until now. */
struct allocation_move {
    struct allocation_record *record;
    char *pod_namespace, *pod_name, *pod_uid;
    size_t slot;
    bool had_slot;
    struct allocation_device *devices; /* as they were */
};

/* Makes the record the container's, with the limits that it was assigned; nothing is written.
 * Returns 0; -EPERM: it was assigned none, for the reason in `error`: the record is its
 * nevertheless, unassigned and with the limits that it has had; -ENOMEM: nothing has changed, and
 * there is no move. */
int allocation_move(struct allocation *allocation, struct allocation_record *record,
    const struct pods_pod *pod, size_t container, struct allocation_move *ret_move,
    struct error *error) __attribute__((warn_unused_result));
/* When all have moved. Returns 0; -ENOSPC: the cards have no room for what it was assigned: it is
 * unassigned, with the limits before. */
int allocation_move_check(struct allocation *allocation, struct allocation_move *move,
    struct error *error) __attribute__((warn_unused_result));
void allocation_move_finish(struct allocation_move *move);

/* allocation_live.c */
/* Limits of the Pod's containers by its annotation, where that is another than was looked at. */
void allocation_look_at_wish(struct allocation *allocation, const struct pods_pod *pod);

#endif
