# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's pod-resources service (v1) lists, asked by curl and decoded here: by other means than
the plugin's."""
import subprocess
import tempfile

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
URL = "http://localhost/v1.PodResourcesLister/List"


def fields(message):
    """(number, bytes) of each field that is a length and as many bytes; others are passed over."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            number()
        elif key & 7 == 2:
            size = number()
            yield key >> 3, message[at:at + size]
            at += size
        else:
            raise ValueError(f"a field of type {key & 7}")


def texts(message, wanted):
    return [content.decode() for number, content in fields(message) if number == wanted]


def answer():
    with tempfile.NamedTemporaryFile() as request:
        request.write(bytes(5))  # one message, not compressed, of no bytes
        request.flush()
        done = subprocess.run(
            ["curl", "-s", "-m", "10", "--http2-prior-knowledge", "--unix-socket", SOCKET, "-X", "POST",
             "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@" + request.name, URL],
            capture_output=True, check=False)
    if done.returncode or len(done.stdout) < 5:
        raise OSError(f"curl ended with {done.returncode}, {len(done.stdout)} bytes")
    return done.stdout[5:]


def listed():
    """{(namespace, Pod): {container: {resource: [device ID]}}}"""
    pods = {}
    for number, pod in fields(answer()):
        if number != 1:
            continue
        containers = pods[texts(pod, 2)[0], texts(pod, 1)[0]] = {}
        for _, container in [one for one in fields(pod) if one[0] == 3]:
            devices = containers[texts(container, 1)[0]] = {}
            for _, one in [one for one in fields(container) if one[0] == 2]:
                devices.setdefault(texts(one, 1)[0], []).extend(texts(one, 2))
    return pods
