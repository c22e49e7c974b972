/* Reads a small file as a whole, for code that parses it: settings, keys, certificates. */
#ifndef BATON_BASE_FILE_READ_H
#define BATON_BASE_FILE_READ_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The caller frees `*bytes`. A NUL follows them, which `*length` doesn't count. STATUS_IO: the file
 * is missing or can't be read. STATUS_LIMIT: it has more than `limit_bytes`. The sentence names the
 * path. */
enum status file_read(const char *path, size_t limit_bytes, char **bytes, size_t *length,
                      struct error *err) WARN_UNUSED;

/* Returns whether users other than the owner may read or write the file, or its group may write it.
 * A group that may only read is a usual way to share a key among services. `mode` gets "0644". A
 * file that can't be looked at is taken for a closed one: reading it has failed, or will. */
bool file_is_open_to_others(const char *path, char mode[8]);
/* Logs a warning if the file is: call it once, at start. `what`: "the private key", for people. */
void file_warn_if_open(const char *module, const char *what, const char *path);

/* Returns whether the bytes are Git LFS's pointer: the lines of text that a clone without Git LFS
 * has in place of a large file. */
bool file_is_lfs_pointer(const void *bytes, size_t length);
#define FILE_LFS_SENTENCE                                                                          \
    "this is Git LFS's pointer to the file, not the file: `git lfs pull` in its folder gets it"

#endif
