#include "common/kv/transport/tcp_answers.h"

#include "common/base/assert.h"
#include "common/kv/transport/tcp.h"

#include <errno.h>
#include <sys/uio.h>

static struct tcp_answer *answer_at(struct tcp_answers *answers, uint32_t index)
{
    return &answers->items[(answers->first + index) % KV_FRAME_WINDOW];
}

void tcp_answers_put(struct tcp_answers *answers, const struct kv_frame *head, const uint8_t *from,
                     uint64_t bytes)
{
    ASSERT(answers->count < KV_FRAME_WINDOW);
    struct tcp_answer *slot = answer_at(answers, answers->count++);
    *slot = (struct tcp_answer){.bytes = bytes, .from = from};
    kv_frame_encode(head, slot->head);
}

static int next_parts(struct tcp_answers *answers, size_t limit, struct iovec parts[TCP_MAX_PARTS])
{
    int count = 0;
    for (uint32_t i = 0; i < answers->count && count + 2 <= TCP_MAX_PARTS && limit > 0; i++) {
        struct tcp_answer *slot = answer_at(answers, i);
        uint64_t done = slot->done;
        if (done < KV_FRAME_BYTES) {
            parts[count++] = (struct iovec){slot->head + done, KV_FRAME_BYTES - done};
            done = KV_FRAME_BYTES;
        }
        uint64_t at = done - KV_FRAME_BYTES, left = slot->bytes - at;
        size_t bytes = left < limit ? left : limit;
        if (bytes > 0) /* sendmsg only reads */
            parts[count++] = (struct iovec){(void *)(uintptr_t)(slot->from + at), bytes};
        limit -= bytes;
        if (bytes < left)
            break;
    }
    return count;
}

static void sent(struct tcp_answers *answers, size_t bytes)
{
    while (bytes > 0) {
        struct tcp_answer *slot = answer_at(answers, 0);
        uint64_t left = KV_FRAME_BYTES + slot->bytes - slot->done;
        uint64_t part = bytes < left ? bytes : left;
        slot->done += part;
        bytes -= part;
        if (part < left)
            return;
        answers->first = (answers->first + 1) % KV_FRAME_WINDOW;
        answers->count--;
    }
}

bool tcp_answers_send(struct tcp_answers *answers, int fd, size_t *budget)
{
    struct iovec parts[TCP_MAX_PARTS];
    size_t limit = *budget < TCP_TURN_BYTES ? *budget : TCP_TURN_BYTES;
    struct msghdr message = {.msg_iov = parts};
    message.msg_iovlen = (size_t)next_parts(answers, limit, parts);
    if (message.msg_iovlen == 0)
        return true;
    ssize_t got = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    *budget -= (size_t)got < *budget ? (size_t)got : *budget;
    sent(answers, (size_t)got);
    return true;
}
