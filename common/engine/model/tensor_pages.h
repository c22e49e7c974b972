/* Pages of a mapped file, read-only, that some bytes lie in: hints to the kernel, which change no content. */
#ifndef BATON_ENGINE_MODEL_TENSOR_PAGES_H
#define BATON_ENGINE_MODEL_TENSOR_PAGES_H

#include <stddef.h>

/* They are going to be read: from now on the disk brings them, and no others. */
void tensor_pages_prefetch(const void *bytes, size_t count);
/* They were read: they leave this process's memory, though not the machine's cache. */
void tensor_pages_release(const void *bytes, size_t count);

#endif
