#include "common/net/rpc/grpc/descriptor_files.h"

#include "common/base/assert.h"

#include <string.h>

/* Field numbers of FileDescriptorSet and FileDescriptorProto; in every descriptor 1 is the name. */
enum { SET_FILE = 1, NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3 };

static bool read_varint(struct rpc_bytes *wire, uint64_t *value)
{
    const uint8_t *at = wire->data;
    *value = 0;
    for (unsigned i = 0; i < 10 && i < wire->size; i++) {
        *value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (!(at[i] & 0x80)) {
            *wire = (struct rpc_bytes){at + i + 1, wire->size - i - 1};
            return true;
        }
    }
    return false;
}

/* Takes fields off `wire` up to the next length-delimited one. False at the end. */
static bool next_field(struct rpc_bytes *wire, uint64_t *number, struct rpc_bytes *content)
{
    uint64_t tag, length;
    while (wire->size && read_varint(wire, &tag)) {
        *number = tag >> 3;
        switch (tag & 7) {
        case 0:
            if (!read_varint(wire, &length))
                return false;
            continue;
        case 1: length = 8; break;
        case 5: length = 4; break;
        case 2:
            if (!read_varint(wire, &length))
                return false;
            break;
        default: return false;
        }
        if (length > wire->size)
            return false;
        *content = (struct rpc_bytes){wire->data, (size_t)length};
        *wire = (struct rpc_bytes){(const char *)wire->data + length, wire->size - (size_t)length};
        if ((tag & 7) == 2)
            return true;
    }
    return false;
}

static struct rpc_bytes get_field(struct rpc_bytes wire, uint64_t wanted)
{
    uint64_t number;
    struct rpc_bytes content;
    while (next_field(&wire, &number, &content))
        if (number == wanted)
            return content;
    return (struct rpc_bytes){"", 0};
}

static bool equals(struct rpc_bytes bytes, const char *text, size_t length)
{
    return bytes.size == length && !memcmp(bytes.data, text, length);
}

static size_t find_name(const struct descriptor_files *files, const char *name, size_t length)
{
    size_t i = 0;
    while (i < files->count && !equals(get_field(files->items[i], NAME), name, length))
        i++;
    return i;
}

size_t descriptor_files_by_name(const struct descriptor_files *files, const char *name)
{
    return find_name(files, name, strlen(name));
}

void descriptor_files_add_set(struct descriptor_files *files, struct rpc_bytes set)
{
    uint64_t number;
    struct rpc_bytes file;
    while (next_field(&set, &number, &file)) {
        struct rpc_bytes name = get_field(file, NAME);
        if (number != SET_FILE || find_name(files, name.data, name.size) < files->count)
            continue;
        ASSERT(files->count < DESCRIPTOR_FILES_MAX); /* the sets are compiled in */
        files->items[files->count++] = file;
    }
}

/* What holds named things, and under which field numbers. */
enum scope { LEAF, FILE_SCOPE, MESSAGE, ENUM, SERVICE };
static const struct {
    enum scope parent;
    uint64_t number;
    enum scope child;
} children[] = {
    {FILE_SCOPE, 4, MESSAGE}, {FILE_SCOPE, 5, ENUM}, {FILE_SCOPE, 6, SERVICE},
    {FILE_SCOPE, 7, LEAF},    {MESSAGE, 2, LEAF},    {MESSAGE, 3, MESSAGE},
    {MESSAGE, 4, ENUM},       {MESSAGE, 6, LEAF},    {MESSAGE, 8, LEAF},
    {ENUM, 2, LEAF},          {SERVICE, 2, LEAF},
};

static size_t child_row(enum scope parent, uint64_t number)
{
    size_t row = 0;
    while (row < sizeof children / sizeof *children &&
           (children[row].parent != parent || children[row].number != number))
        row++;
    return row;
}

/* Is there something called `path` in this scope? Recursion ends: each level takes a name off the
 * path, and an enum (whose values are named like its neighbours) holds no scopes. */
static bool scope_has(enum scope scope, struct rpc_bytes wire, const char *path)
{
    uint64_t number;
    struct rpc_bytes content;
    size_t length = strcspn(path, ".");
    while (next_field(&wire, &number, &content)) {
        size_t row = child_row(scope, number);
        if (row == sizeof children / sizeof *children)
            continue;
        enum scope child = children[row].child;
        if (child == ENUM && scope_has(ENUM, content, path))
            return true;
        if (!equals(get_field(content, NAME), path, length))
            continue;
        if (!path[length])
            return true;
        if ((child == MESSAGE || child == SERVICE) && scope_has(child, content, path + length + 1))
            return true;
    }
    return false;
}

size_t descriptor_files_by_symbol(const struct descriptor_files *files, const char *symbol)
{
    for (size_t i = 0; i < files->count; i++) {
        struct rpc_bytes package = get_field(files->items[i], FILE_PACKAGE);
        size_t skip = package.size ? package.size + 1 : 0;
        if (strlen(symbol) > skip &&
            (!skip ||
             (!memcmp(symbol, package.data, package.size) && symbol[package.size] == '.')) &&
            scope_has(FILE_SCOPE, files->items[i], symbol + skip))
            return i;
    }
    return files->count;
}

size_t descriptor_files_closure(const struct descriptor_files *files, size_t index,
                                struct rpc_bytes closure[DESCRIPTOR_FILES_MAX])
{
    bool taken[DESCRIPTOR_FILES_MAX] = {0};
    size_t count = 0;
    closure[count++] = files->items[index];
    taken[index] = true;
    for (size_t i = 0; i < count; i++) {
        struct rpc_bytes wire = closure[i], content;
        uint64_t number;
        while (next_field(&wire, &number, &content)) {
            if (number != FILE_DEPENDENCY)
                continue;
            size_t found = find_name(files, content.data, content.size);
            if (found < files->count && !taken[found]) {
                taken[found] = true;
                closure[count++] = files->items[found];
            }
        }
    }
    return count;
}
