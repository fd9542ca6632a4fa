# SPDX-License-Identifier: Apache-2.0
"""Patches and selectors as the API server applies them; pure functions over JSON values."""
import json
import re


class Refused(Exception):
    """A request that is answered with a Status: its code, reason and message."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def bad_request(message):
    return Refused(400, "BadRequest", message)


def clone(value):
    return json.loads(json.dumps(value))


def merge(target, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


# By which member the items of these lists are found (patchMergeKey); other lists are replaced.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
              "conditions": "type", "imagePullSecrets": "name", "ownerReferences": "uid"}


def strategic(target, patch, key=None):
    """A strategic merge patch: maps, the lists above, and $patch delete and replace."""
    if isinstance(patch, dict):
        how = patch.get("$patch")
        if how == "replace":
            return {k: v for k, v in patch.items() if k != "$patch"}
        result = dict(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
                result.pop(name, None)
            else:
                result[name] = strategic(result.get(name), value, name)
        return result
    if isinstance(patch, list) and key in MERGE_KEYS:
        by = MERGE_KEYS[key]
        result = list(target) if isinstance(target, list) else []
        for item in patch:
            if not isinstance(item, dict) or by not in item:
                raise bad_request(f"items of {key} need {by}")
            at = next((i for i, old in enumerate(result) if old.get(by) == item[by]), None)
            if item.get("$patch") == "delete":
                result = [old for old in result if old.get(by) != item[by]]
            elif at is None:
                result.append(item)
            else:
                result[at] = strategic(result[at], item)
        return result
    return patch


def pointer(text):
    if text and not text.startswith("/"):
        raise bad_request(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def step(value, part):
    if isinstance(value, list):
        return int(part)
    if not isinstance(value, dict):
        raise LookupError(part)
    return part


def look(document, path):
    for part in path:
        document = document[step(document, part)]
    return document


def apply_one(document, change):
    """One operation of RFC 6902, in place; returns the document."""
    operation, path = change["op"], pointer(change["path"])
    if operation in ("move", "copy"):
        source = pointer(change["from"])
        value = clone(look(document, source))
        if operation == "move":
            apply_one(document, {"op": "remove", "path": change["from"]})
        return apply_one(document, {"op": "add", "path": change["path"], "value": value})
    if operation == "test":
        if look(document, path) != change["value"]:
            raise LookupError("test failed: " + change["path"])
        return document
    if not path:
        return change["value"]
    parent, last = look(document, path[:-1]), path[-1]
    if operation == "add" and isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), change["value"])
    elif operation == "add":
        parent[step(parent, last)] = change["value"]
    elif operation in ("replace", "remove"):
        look(parent, [last])
        if operation == "remove":
            del parent[step(parent, last)]
        else:
            parent[step(parent, last)] = change["value"]
    else:
        raise bad_request(f"{operation!r} is no operation")
    return document


def json_patch(target, patch):
    """RFC 6902; a patch that cannot be applied is refused with 422, as the API server does it."""
    document = clone(target)
    try:
        for change in patch:
            document = apply_one(document, change)
    except (LookupError, ValueError, TypeError) as error:
        raise Refused(422, "Invalid", f"the patch cannot be applied: {error}") from error
    return document


def apply(content_type, target, patch):
    kind = (content_type or "").split(";")[0].strip()
    if kind == "application/merge-patch+json":
        return merge(clone(target), patch)
    if kind == "application/json-patch+json":
        return json_patch(target, patch)
    if kind == "application/strategic-merge-patch+json":
        return strategic(clone(target), patch)
    raise Refused(415, "UnsupportedMediaType", f"{content_type} is not accepted for PATCH")


FIELDS = {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase",
          "type", "reason", "involvedObject.name", "involvedObject.namespace", "involvedObject.uid",
          "involvedObject.kind"}


def field_of(value, path):
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value or ""


def field_selector(text):
    """Returns a predicate of an object."""
    terms = []
    for term in filter(None, (text or "").split(",")):
        match = re.fullmatch(r"([A-Za-z.]+)(!=|==|=)(.*)", term)
        if not match or match[1] not in FIELDS:
            raise bad_request(f"field label not supported: {term}")
        terms.append((match[1], match[2] == "!=", match[3]))
    return lambda item: all((field_of(item, path) == value) != unequal for path, unequal, value in terms)


def label_selector(text):
    """Returns a predicate of an object."""
    terms = []
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", text or ""):
        term = term.strip()
        among = re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", term)
        equal = re.fullmatch(r"([^!=\s]+)\s*(!=|==|=)\s*(\S*)", term)
        exists = re.fullmatch(r"(!?)([^!=\s]+)", term)
        if among:
            values = {value.strip() for value in among[3].split(",")}
            terms.append(lambda l, k=among[1], v=values, n=among[2] == "notin": (l.get(k) in v) != n)
        elif equal:
            terms.append(lambda l, k=equal[1], v=equal[3], n=equal[2] == "!=": (l.get(k) == v) != n)
        elif exists:
            terms.append(lambda l, k=exists[2], n=bool(exists[1]): (k in l) != n)
        else:
            raise bad_request(f"unable to parse requirement: {term}")
    return lambda item: all(term(item["metadata"].get("labels") or {}) for term in terms)
