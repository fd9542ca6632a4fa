/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the kubelet and of device plugins: the first byte chooses which. One that is decoded
 * is encoded again; none takes more memory than it may. */
#include "net/message.h"

#include "net/deviceplugin.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        &v1beta1__allocate_request__descriptor, &v1beta1__preferred_allocation_request__descriptor,
        &v1beta1__pre_start_container_request__descriptor, &v1beta1__empty__descriptor,
        &v1beta1__register_request__descriptor, &v1beta1__device_plugin_options__descriptor,
        &v1beta1__list_and_watch_response__descriptor, &v1beta1__allocate_response__descriptor,
        &v1beta1__preferred_allocation_response__descriptor,
        &v1__list_pod_resources_response__descriptor, &v1__get_pod_resources_response__descriptor,
        &v1__get_pod_resources_request__descriptor,
        &v1__allocatable_resources_response__descriptor};
    if (!size)
        return 0;
    const ProtobufCMessageDescriptor *descriptor =
        descriptors[data[0] % (sizeof(descriptors) / sizeof(*descriptors))];
    void *copy = fuzz_copy(data + 1, size - 1);
    void *message = message_unpack(descriptor, copy, size - 1, 100000);
    free(copy);
    if (message) {
        size_t bytes = 0;
        uint8_t *packed = message_pack(message, &bytes);
        FUZZ_CHECK(packed && bytes == protobuf_c_message_get_packed_size(message));
        free(packed);
    }
    message_free(message);
    char *text = fuzz_text(data, size);
    (void)message_is_utf8(text);
    free(text);
    return 0;
}
