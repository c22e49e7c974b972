#include "common/net/rpc/grpc/headers.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

static bool has_nul(grpc_slice slice)
{
    return memchr(GRPC_SLICE_START_PTR(slice), 0, GRPC_SLICE_LENGTH(slice)) != NULL;
}

void headers_read(struct headers *headers, const grpc_metadata_array *array)
{
    size_t size = 0;
    for (size_t i = 0; i < array->count; i++)
        size += GRPC_SLICE_LENGTH(array->metadata[i].key) +
                GRPC_SLICE_LENGTH(array->metadata[i].value) + 2;
    headers_deinit(headers);
    if (!size)
        return;
    headers->block = malloc(size);
    ASSERT(headers->block);
    for (size_t i = 0; i < array->count; i++) {
        const grpc_metadata *item = &array->metadata[i];
        if (grpc_is_binary_header(item->key) || has_nul(item->key) || has_nul(item->value))
            continue;
        const grpc_slice *parts[] = {&item->key, &item->value};
        for (size_t part = 0; part < 2; part++) {
            size_t length = GRPC_SLICE_LENGTH(*parts[part]);
            memcpy(headers->block + headers->size, GRPC_SLICE_START_PTR(*parts[part]), length);
            headers->size += length;
            headers->block[headers->size++] = 0;
        }
    }
}

void headers_deinit(struct headers *headers)
{
    free(headers->block);
    *headers = (struct headers){0};
}

const char *headers_get(const struct headers *headers, const char *key)
{
    for (size_t at = 0; at < headers->size;) {
        const char *name = headers->block + at;
        const char *value = name + strlen(name) + 1;
        if (!strcmp(name, key))
            return value;
        at = (size_t)(value + strlen(value) + 1 - headers->block);
    }
    return "";
}

enum status header_list_add(struct header_list *list, const char *key, const char *value)
{
    if (list->count == RPC_MAX_METADATA)
        return STATUS_LIMIT;
    grpc_slice key_slice = grpc_slice_from_copied_string(key);
    grpc_slice value_slice = grpc_slice_from_copied_string(value);
    if (!grpc_header_key_is_legal(key_slice) || grpc_is_binary_header(key_slice) ||
        !grpc_header_nonbin_value_is_legal(value_slice)) {
        grpc_slice_unref(key_slice);
        grpc_slice_unref(value_slice);
        return STATUS_INVALID;
    }
    if (!list->items)
        list->items = calloc(RPC_MAX_METADATA, sizeof *list->items);
    ASSERT(list->items);
    list->items[list->count++] = (grpc_metadata){.key = key_slice, .value = value_slice};
    return STATUS_OK;
}

void header_list_deinit(struct header_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        grpc_slice_unref(list->items[i].key);
        grpc_slice_unref(list->items[i].value);
    }
    free(list->items);
    *list = (struct header_list){0};
}
