/* Pages of a mapped file that some bytes lie in. */
#ifndef BATON_ENGINE_MODEL_TENSOR_PAGES_H
#define BATON_ENGINE_MODEL_TENSOR_PAGES_H

#include <stddef.h>

/* They were read: they leave this process's memory, though not the machine's cache. What is read
 * once more comes back. */
void tensor_pages_release(const void *bytes, size_t count);

#endif
