# SPDX-License-Identifier: Apache-2.0
"""The objects of the fake API server with their history. Stored objects are never changed in place."""
import base64
import datetime
import json
import threading
import uuid

import api_patch
from api_patch import Refused, clone

# plural: (prefix of the path, apiVersion, kind, namespaced)
CORE, COORDINATION = "/api/v1", "/apis/coordination.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RESOURCES = {
    "nodes": (CORE, "v1", "Node", False),
    "namespaces": (CORE, "v1", "Namespace", False),
    "pods": (CORE, "v1", "Pod", True),
    "events": (CORE, "v1", "Event", True),
    "configmaps": (CORE, "v1", "ConfigMap", True),
    "secrets": (CORE, "v1", "Secret", True),
    "resourcequotas": (CORE, "v1", "ResourceQuota", True),
    "leases": (COORDINATION, "coordination.k8s.io/v1", "Lease", True),
    "mutatingwebhookconfigurations": (ADMISSION, "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", False),
    "validatingwebhookconfigurations": (ADMISSION, "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", False),
}
PREFIXES = sorted({row[0] for row in RESOURCES.values()})
VERSION_REQUIRED = {"leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}  # for PUT; the others may be written over
HISTORY_MAX = 200000  # changes; half of them are forgotten then
KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
        "deletionGracePeriodSeconds")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Change:
    """`before` and `after` are None where the object did not exist."""

    def __init__(self, version, resource, before, after):
        self.version, self.resource, self.before, self.after = version, resource, before, after


class Store:
    def __init__(self):
        self.changed = threading.Condition()  # and the lock of all
        self.version = 1000
        self.compacted = 0
        self.objects = {resource: {} for resource in RESOURCES}
        self.history = []
        self.pages = {}
        self.binding_labels = False  # some API servers merge labels of a Binding, too

    # -- reading

    def get(self, resource, namespace, name):
        with self.changed:
            found = self.objects[resource].get((namespace or "", name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        return found

    def select(self, resource, namespace, fields, labels):
        field, label = api_patch.field_selector(fields), api_patch.label_selector(labels)
        return lambda item: ((namespace is None or item["metadata"].get("namespace") == namespace)
                             and field(item) and label(item))

    def items(self, resource, wanted=lambda item: True):
        return [item for _, item in sorted(self.objects[resource].items()) if wanted(item)]

    def list(self, resource, namespace, query):
        """A page: all pages of a list are of one version."""
        with self.changed:
            if query.get("continue"):
                version, items = self.pages.pop(query["continue"], (0, None))
                if items is None or version < self.compacted:
                    raise Refused(410, "Expired", "the provided continue parameter is too old")
            else:
                wanted = self.select(resource, namespace, query.get("fieldSelector"),
                                     query.get("labelSelector"))
                version, items = self.version, self.items(resource, wanted)
            limit, metadata = int(query.get("limit") or 0), {"resourceVersion": str(version)}
            if limit and len(items) > limit:
                token = base64.urlsafe_b64encode(uuid.uuid4().bytes + b"\xff\xfe").decode() + "=+/"
                self.pages[token] = (version, items[limit:])
                metadata.update({"continue": token, "remainingItemCount": len(items) - limit})
                items = items[:limit]
        _, api, kind, _ = RESOURCES[resource]
        return {"kind": kind + "List", "apiVersion": api, "metadata": metadata, "items": items}

    def changes_since(self, version):
        """Under the lock. None where they are forgotten."""
        if version < self.compacted:
            return None
        at = len(self.history)
        while at > 0 and self.history[at - 1].version > version:
            at -= 1
        return self.history[at:]

    def compact(self):
        """Forgets all changes until now, with one that a watcher at the last version has missed."""
        with self.changed:
            self.version += 1
            self.compacted = self.version
            self.history = []
            self.pages = {}

    # -- writing

    def _put(self, resource, key, before, after):
        """Under the lock."""
        self.version += 1
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
            self.objects[resource][key] = after
        else:
            del self.objects[resource][key]
            before = clone(before)
            before["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Change(self.version, resource, before, after))
        if len(self.history) > HISTORY_MAX:
            self.compacted = self.history[HISTORY_MAX // 2].version
            self.history = self.history[HISTORY_MAX // 2 + 1:]
        self.changed.notify_all()
        return after if after is not None else before

    def create(self, resource, namespace, item):
        _, api, kind, namespaced = RESOURCES[resource]
        item = clone(item)
        metadata = item.setdefault("metadata", {})
        if metadata.get("generateName") and not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if not metadata.get("name"):
            raise Refused(422, "Invalid", "metadata.name: Required value")
        if namespaced:
            if metadata.get("namespace") not in (None, "", namespace):
                raise api_patch.bad_request("the namespace of the object does not match the path")
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        item.setdefault("apiVersion", api)
        item.setdefault("kind", kind)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", now())
        if resource == "pods":
            item.setdefault("status", {}).setdefault("phase", "Pending")
        key = (metadata.get("namespace", ""), metadata["name"])
        with self.changed:
            if key in self.objects[resource]:
                raise Refused(409, "AlreadyExists", f'{resource} "{metadata["name"]}" already exists')
            return self._put(resource, key, None, item)

    def change(self, resource, namespace, name, make, sub=None, raw=False):
        """`make` gets a copy and returns what is to be; what nobody may change stays. The status of Pods
        and nodes changes by the subresource alone, or raw."""
        key = (namespace or "", name)
        with self.changed:
            before = self.objects[resource].get(key)
            if before is None:
                raise Refused(404, "NotFound", f'{resource} "{name}" not found')
            after = make(clone(before))
            if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
                raise api_patch.bad_request("the object has no metadata")
            self._check(resource, name, before, after)
            if sub == "status":
                after = {**clone(before), "status": after.get("status", {}),
                         "metadata": after["metadata"]}
            elif resource in ("pods", "nodes") and "status" in before and not (raw and "status" in after):
                after["status"] = before["status"]
            for member in KEPT:
                if member in before["metadata"]:
                    after["metadata"][member] = before["metadata"][member]
                else:
                    after["metadata"].pop(member, None)
            after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            if after == before:
                return before
            return self._put(resource, key, before, after)

    @staticmethod
    def _check(resource, name, before, after):
        for member in ("resourceVersion", "uid"):
            wanted = after["metadata"].get(member)
            if wanted and wanted != before["metadata"][member]:
                raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": '
                              "the object has been modified; please apply your changes to the "
                              f"latest version and try again ({member})")

    def replace(self, resource, namespace, name, item, sub=None):
        if resource in VERSION_REQUIRED and not item.get("metadata", {}).get("resourceVersion"):
            raise Refused(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        return self.change(resource, namespace, name, lambda before: clone(item), sub)

    def patch(self, resource, namespace, name, content_type, patch, sub=None):
        return self.change(resource, namespace, name,
                           lambda before: api_patch.apply(content_type, before, patch), sub)

    def delete(self, resource, namespace, name, options):
        """Pods that run get a deletionTimestamp first, and are gone when deleted with grace 0."""
        key = (namespace or "", name)
        with self.changed:
            before = self.objects[resource].get(key)
            if before is None:
                raise Refused(404, "NotFound", f'{resource} "{name}" not found')
            self._check(resource, name, before, {"metadata": options.get("preconditions") or {}})
            grace = options.get("gracePeriodSeconds")
            if grace is None:
                grace = before.get("spec", {}).get("terminationGracePeriodSeconds", 30)
            runs = (resource == "pods" and before.get("spec", {}).get("nodeName")
                    and before.get("status", {}).get("phase") not in ("Succeeded", "Failed"))
            if not runs or int(grace) == 0:
                return self._put(resource, key, before, None)
            if "deletionTimestamp" in before["metadata"]:
                return before
            after = clone(before)
            after["metadata"].update(deletionTimestamp=now(), deletionGracePeriodSeconds=int(grace))
            return self._put(resource, key, before, after)

    def bind(self, namespace, name, binding):
        """pods/binding: annotations of the Binding come into the Pod in the same write."""
        target, metadata = binding.get("target") or {}, binding.get("metadata") or {}
        if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
            raise api_patch.bad_request("target: a Node with a name is required")

        def make(pod):
            if metadata.get("uid") and metadata["uid"] != pod["metadata"]["uid"]:
                raise Refused(409, "Conflict", f'Precondition failed: UID in precondition: '
                              f'{metadata["uid"]}, UID in object meta: {pod["metadata"]["uid"]}')
            if "deletionTimestamp" in pod["metadata"]:
                raise Refused(409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host")
            if pod.setdefault("spec", {}).get("nodeName"):
                raise Refused(409, "Conflict", f'pod {name} is already assigned to node '
                              f'"{pod["spec"]["nodeName"]}"')
            pod["spec"]["nodeName"] = target["name"]
            for part in ("annotations", "labels") if self.binding_labels else ("annotations",):
                if metadata.get(part):
                    pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **metadata[part]}
            conditions = pod["status"].setdefault("conditions", [])
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now()})
            return pod

        self.change("pods", namespace, name, make, raw=True)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


def event_of(change, wanted):
    """(type, object) as a watcher with this selector sees it, or None."""
    before = change.before is not None and wanted(change.before)
    after = change.after is not None and wanted(change.after)
    if after:
        return ("MODIFIED" if before else "ADDED"), change.after
    if not before:
        return None
    gone = change.before
    if change.after is not None:  # it exists, but is not selected any more
        gone = clone(gone)
        gone["metadata"]["resourceVersion"] = str(change.version)
    return "DELETED", gone


def line_of(kind, item):
    return (json.dumps({"type": kind, "object": item}, separators=(",", ":")) + "\n").encode()
