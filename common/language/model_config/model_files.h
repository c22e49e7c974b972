/* What two processes must agree on about a model folder: its name, and its small files, as
 * hashes. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_FILES_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_FILES_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The last part of the folder's real path, so that "." and "models/x/" and links have names too,
 * the same ones for everybody. STATUS_NOT_FOUND: no such folder; STATUS_INVALID: no name for it, or
 * one of more than `size` - 1 bytes. */
enum status model_folder_name(const char *dir, char *name, size_t size,
                              struct error *err) WARN_UNUSED;
/* Of a file's bytes; 0: it isn't there, or can't be read. */
uint64_t model_file_hash(const char *dir, const char *name);

#endif
